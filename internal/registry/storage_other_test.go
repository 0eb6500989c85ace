//go:build !linux

package registry_test

import (
	"errors"
	"testing"
)

func mountSmall(*testing.T, string, int) error { return errors.ErrUnsupported }
