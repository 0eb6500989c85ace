package upstream

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// minProgress is how many bytes must arrive in the time that a registry may be slow for. One that sends a byte now and then
// would keep a fetch for ever.
const minProgress = 64 << 10

var errStalled = errors.New("too little arrives")

// A steady reader ends a request that is too slow.
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
		now := s.read.Load()
		if now-last < minProgress {
			cancel(errStalled)
			return
		}
		last = now
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
