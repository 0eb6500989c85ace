package upstream

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// minProgress is the number of bytes that must arrive in each period of Config.Stall. Without this limit, a registry
// that sends single bytes could keep a fetch running forever.
const minProgress = 64 << 10

var errStalled = errors.New("too little arrives")

// A steady reads the body of a response, and cancels the request if the body arrives too slowly.
type steady struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	read   atomic.Int64
}

func newSteady(body io.ReadCloser, stall time.Duration, cancel context.CancelCauseFunc) *steady {
	s := &steady{body: body, cancel: cancel}
	begun := make(chan struct{})
	var last int64
	s.timer = time.AfterFunc(stall, func() {
		<-begun
		read := s.read.Load()
		if read-last < minProgress {
			cancel(errStalled)
			return
		}
		last = read
		s.timer.Reset(stall)
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
