package upstream

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// defaultMinRate is the default of Config.MinRate.
const defaultMinRate = 32 << 10

var errStalled = errors.New("too little arrives")

// A steady reads the body of a response, and cancels the request if the body arrives too slowly. Otherwise a registry
// that sends single bytes could keep a fetch running forever.
type steady struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	read   atomic.Int64
}

// newSteady returns a steady that cancels the request if fewer than the given number of bytes arrive in a period.
func newSteady(body io.ReadCloser, period time.Duration, least int64, cancel context.CancelCauseFunc) *steady {
	s := &steady{body: body, cancel: cancel}
	begun := make(chan struct{})
	var last int64
	s.timer = time.AfterFunc(period, func() {
		<-begun
		read := s.read.Load()
		if read-last < least {
			cancel(errStalled)
			return
		}
		last = read
		s.timer.Reset(period)
	})
	close(begun)
	return s
}

func (s *steady) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	s.read.Add(int64(n))
	return n, err
}

func (s *steady) Close() error {
	s.timer.Stop()
	s.cancel(nil)
	return s.body.Close()
}
