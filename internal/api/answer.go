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

// An answer is a message to a client over gRPC. grpc-go keeps it in memory after the
// method has returned, until the client has read it. The codec encodes it into
// buffers that report when grpc-go releases them.
type answer struct {
	message any
	size    int    // in bytes
	conn    Conn   // connection of the client; may be nil
	free    func() // called after the answer was sent or dropped; may be nil
}

// answer returns out as an answer that counts against the caller's quota until it
// is sent. It returns fault.ResourceExhausted if the caller has too many bytes of
// unread answers.
func (c *chain) answer(ctx context.Context, out any) (any, error) {
	k := callOf(ctx)
	a := newAnswer(ctx, out, nil)
	counted := a.size
	if k.anonymous() {
		counted = max(counted, anonymousAnswer)
	}
	if counted < smallAnswer {
		return out, nil
	}
	release, err := c.countAnswer(k, counted)
	if err != nil {
		return nil, err
	}
	a.free = release
	sendUncompressed(ctx)
	return a, nil
}

// sendUncompressed makes grpc-go send the messages of a call uncompressed. If the
// client compresses its messages, grpc-go would compress ours as well, and the
// quota would count buffers other than the waiting ones.
func sendUncompressed(ctx context.Context) {
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // fails only after the answer was sent
}

// countAnswer counts an answer of size bytes against the quota of the caller until
// release is called. It returns fault.ResourceExhausted if the caller exceeds its
// quota.
func (c *chain) countAnswer(k *call, size int) (release func(), _ error) {
	if size < smallAnswer {
		return func() {}, nil
	}
	if !c.unsent.acquire(k, int64(size)) {
		return func() {}, busy("unread answers")
	}
	return sync.OnceFunc(func() { c.unsent.release(k, int64(size)) }), nil
}

func newAnswer(ctx context.Context, message any, free func()) *answer {
	a := &answer{message: message, conn: connOf(ctx), free: free}
	if m, ok := message.(proto.Message); ok {
		a.size = proto.Size(m)
	}
	return a
}

// closeConn closes the connection of a client that does not read the answer.
// Ending the call would not be enough, because grpc-go would keep the answer.
func (a *answer) closeConn() {
	if a.conn != nil {
		_ = a.conn.Close() // its calls end with an error
	}
}

// marshal encodes the answer. The buffers call a.free when grpc-go releases them. marshal
// also starts a timer that closes the connection if they are not released in time,
// because the client reads too slowly.
func (a *answer) marshal(c encoding.CodecV2) (mem.BufferSlice, error) {
	m, ok := a.message.(proto.Message)
	if !ok || a.free == nil && a.size < smallAnswer {
		a.done()
		return c.Marshal(a.message)
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(max(a.size, smallAnswer)) // grpc-go does not release smaller buffers through the pool
	// newAnswer has computed the size.
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], m)
	*buf = b
	a.message = nil // frees its memory, because it may be large
	if err != nil {
		pool.Put(buf)
		a.done()
		return nil, err
	}
	late := time.AfterFunc(answerTime+time.Duration(a.size)*time.Second/minAnswerRate, a.closeConn)
	sent := sync.OnceFunc(func() { late.Stop(); a.done() })
	if a.conn != nil { // grpc-go does not release the buffers of a connection that is closed
		cancel := a.conn.AfterClose(sent)
		return mem.BufferSlice{mem.NewBuffer(buf, notifyingPool{pool, func() { cancel(); sent() }})}, nil
	}
	return mem.BufferSlice{mem.NewBuffer(buf, notifyingPool{pool, sent})}, nil
}

// done is called after the answer was sent or dropped.
func (a *answer) done() {
	if a.free != nil {
		a.free()
	}
}

// A notifyingPool is a mem.BufferPool that calls sent when a buffer is put back.
type notifyingPool struct {
	mem.BufferPool
	sent func()
}

func (p notifyingPool) Put(b *[]byte) {
	p.sent()
	p.BufferPool.Put(b)
}
