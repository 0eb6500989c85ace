package api

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// An answer is a message on its way to a client over gRPC. It is in memory until
// the client has taken it: grpc-go keeps it, and the method that made it is over.
// The codec makes it bytes, and these know when grpc-go lets go of them.
type answer struct {
	message any
	size    int
	conn    Conn   // may be nil
	free    func() // is called when it has been sent, or never will be; may be nil
}

// answer returns out as an answer that counts against the caller's share until it
// is sent. It returns fault.ResourceExhausted if the caller has not taken what it
// asked for before.
func (c *chain) answer(ctx context.Context, out any) (any, error) {
	k := callOf(ctx)
	a := newAnswer(ctx, out, nil)
	counted := a.size
	if k.stranger() {
		counted = max(counted, strangerAnswer)
	}
	if counted < smallAnswer {
		return out, nil
	}
	release, err := c.hold(k, counted)
	if err != nil {
		return nil, err
	}
	a.free = release
	asItIs(ctx)
	return a, nil
}

// asItIs has a call's messages sent as they are. grpc-go compresses those of a
// client that compresses its own, and then the bytes that wait are not ours to
// count.
func asItIs(ctx context.Context) {
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // fails only after an answer
}

// hold counts an answer of size bytes against the share of who called, until the
// function it returns is called. It returns fault.ResourceExhausted if that would
// be too much.
func (c *chain) hold(k *call, size int) (release func(), _ error) {
	if size < smallAnswer {
		return func() {}, nil
	}
	if !c.unsent.take(k, int64(size)) {
		return func() {}, busy("answers that are not read")
	}
	return sync.OnceFunc(func() { c.unsent.give(k, int64(size)) }), nil
}

func newAnswer(ctx context.Context, message any, free func()) *answer {
	a := &answer{message: message, conn: connOf(ctx), free: free}
	if m, ok := message.(proto.Message); ok {
		a.size = proto.Size(m)
	}
	return a
}

// giveUp ends the connection, because the client does not take the answer. To
// end the call would not be enough: grpc-go keeps what the client has not taken.
func (a *answer) giveUp() {
	if a.conn != nil {
		_ = a.conn.Close() // its calls end with an error
	}
}

// marshal returns the answer as bytes that call free when they are not needed any
// more. It gives a client that takes them too slowly up.
func (a *answer) marshal(c encoding.CodecV2) (mem.BufferSlice, error) {
	m, ok := a.message.(proto.Message)
	if !ok || a.free == nil && a.size < smallAnswer {
		a.done()
		return c.Marshal(a.message)
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(max(a.size, smallAnswer))                                        // grpc-go does not say when it is done with fewer bytes
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], m) // newAnswer has asked for the size
	*buf = b
	a.message = nil // it is not needed any more, and large
	if err != nil {
		pool.Put(buf)
		a.done()
		return nil, err
	}
	late := time.AfterFunc(answerTime+time.Duration(a.size)*time.Second/minAnswerRate, a.giveUp)
	sent := sync.OnceFunc(func() { late.Stop(); a.done() })
	if a.conn != nil { // when the connection is closed, grpc-go drops what it has, and tells nobody
		stay := a.conn.AfterClose(sent)
		return mem.BufferSlice{mem.NewBuffer(buf, sending{pool, func() { stay(); sent() }})}, nil
	}
	return mem.BufferSlice{mem.NewBuffer(buf, sending{pool, sent})}, nil
}

// done is for when the answer has been sent, or never will be.
func (a *answer) done() {
	if a.free != nil {
		a.free()
	}
}

// sending is where the bytes of an answer go when they have been sent: a pool, as
// far as grpc-go knows.
type sending struct {
	mem.BufferPool
	sent func()
}

// Put is of mem.BufferPool.
func (s sending) Put(b *[]byte) {
	s.sent()
	s.BufferPool.Put(b)
}
