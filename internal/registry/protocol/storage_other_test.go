//go:build !linux

package protocol_test

import (
	"errors"
	"testing"
)

func mountSmall(*testing.T, string, int) error { return errors.ErrUnsupported }
