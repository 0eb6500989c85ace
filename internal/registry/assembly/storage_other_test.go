//go:build !linux

package assembly_test

import (
	"errors"
	"testing"
)

func mountSmall(*testing.T, string, int) error { return errors.ErrUnsupported }
