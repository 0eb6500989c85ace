package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/token"
)

// defaultDeadline is how long a call may take. A caller can set a deadline that
// comes before it.
const defaultDeadline = 30 * time.Second

// A chain is what happens around every call, over gRPC and as JSON alike: it
// gets an id, a deadline, a caller, and in the end a line in the log, a figure in
// the metrics, and its fault as a status.
type chain struct {
	domain       string
	log          *slog.Logger
	metrics      *metrics
	authenticate func(context.Context, origin) (authz.Caller, error)
	rules        map[string]rule // by full method name, all names
	proxies      Proxies

	slow      share  // messages that are slow to come
	streaming share  // calls with streams
	unsent    share  // bytes of answers
	calls     *quota // of strangers, on connections of gRPC on which nobody is known
	reading   *quota // calls of strangers whose messages are being read
}

func newChain(cfg Config, authenticate func(context.Context, origin) (authz.Caller, error)) *chain {
	return &chain{
		domain: cfg.Domain, log: cfg.Log, metrics: newMetrics(cfg.Metrics, cfg.Version), authenticate: authenticate, rules: methodRules(), proxies: cfg.Proxies,
		slow:      newShare(maxSlow, maxSlowByAddress, maxSlowStrangers),
		streaming: newShare(maxStreaming, maxStreamingByAddress, maxStreamingStrangers),
		unsent:    newShare(maxUnsent, maxUnsentByAddress, maxUnsentStrangers),
		calls:     newQuota(maxStrangersCalls),
		reading:   newQuota(maxStrangersReading),
	}
}

// A call is one call on its way through the chain.
type call struct {
	origin  origin
	rule    rule
	subject resource.UID // who is calling, once that is known
	tenant  string       // of the subject
	from    string       // the addresses that remote counts as one with
	start   time.Time
}

type callKey struct{}

// callOf returns the call that ctx is of, which the chain has admitted.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// stranger tells whether nobody knows who calls.
func (k *call) stranger() bool { return k.subject == "" }

// mostMessage is how many bytes the message of a call may have, as far as it
// depends on who calls.
func (k *call) mostMessage() int64 {
	if k.stranger() {
		return maxStrangerMessage
	}
	return math.MaxInt64
}

// unary is the chain of a call that has one answer.
func (c *chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	k := c.begin(ctx, info.FullMethod)
	defer c.metrics.inFlight.Dec()
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	_ = grpc.SetHeader(ctx, metadata.MD{requestIDKey: {k.origin.id}}) // fails only after an answer
	resp, err := protect(func() (any, error) {
		ctx, err := c.admit(ctx, k)
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	})
	if err := c.end(ctx, k, err); err != nil {
		return nil, err
	}
	return resp, nil
}

// rehearse is an interceptor that keeps a call from changing anything whose
// request says validate_only. It stands where the request has been read: in front
// of the method.
func rehearse(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if r, ok := req.(interface{ GetValidateOnly() bool }); ok && r.GetValidateOnly() {
		ctx = resource.Rehearse(ctx)
	}
	return next(ctx, req)
}

// stream is the chain of a call with streams. It has no deadline but the
// caller's.
func (c *chain) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := ss.Context()
	k := c.begin(ctx, info.FullMethod)
	defer c.metrics.inFlight.Dec()
	_, err := protect(func() (any, error) {
		ctx, err := c.admit(ctx, k)
		if err != nil {
			return nil, err
		}
		if !c.streaming.take(k, 1) {
			return nil, busy("calls with streams")
		}
		defer c.streaming.give(k, 1)
		if k.stranger() && compressed(ctx) {
			return nil, fault.Field("body", "must not be compressed")
		}
		asItIs(ctx)
		return nil, next(srv, admitted{ss, ctx, k})
	})
	if _, foreign := status.FromError(err); err != nil && foreign {
		return err // a status of the library that serves the stream
	}
	return c.end(ctx, k, err)
}

// admitted is a stream whose caller is known.
type admitted struct {
	grpc.ServerStream
	ctx  context.Context
	call *call
}

// Context is of grpc.ServerStream.
func (a admitted) Context() context.Context { return a.ctx }

// RecvMsg is of grpc.ServerStream.
func (a admitted) RecvMsg(m any) error {
	if g := gateOf(a.ctx); g != nil {
		g.open(a.call.mostMessage())
	}
	return a.ServerStream.RecvMsg(m)
}

// SendMsg is of grpc.ServerStream. The connection ends if the client does not
// take what was sent before.
func (a admitted) SendMsg(m any) error {
	out := newAnswer(a.ctx, m, nil)
	late := time.AfterFunc(answerTime, out.giveUp)
	defer late.Stop()
	return a.ServerStream.SendMsg(out)
}

// decodeInside returns a copy of d that reads requests and counts answers inside
// the chain, as the gateway does. Only a caller who may call the method has its
// message read; and bytes that are no message are a bad request like any other,
// and not, as grpc-go has it, an error of ours.
func (c *chain) decodeInside(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	inside := *d
	inside.Methods = slices.Clone(d.Methods)
	for i, m := range d.Methods {
		name := "/" + d.ServiceName + "/" + m.MethodName
		inside.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
			info := &grpc.UnaryServerInfo{Server: srv, FullMethod: name}
			return chain(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
				out, err := m.Handler(srv, ctx, func(in any) error { return c.receive(ctx, decode, in) }, rehearse)
				if err != nil {
					return nil, err
				}
				return c.answer(ctx, out)
			})
		}
	}
	return &inside
}

// An undecided is a request that may turn out not to be one. grpc-go has answered
// by itself as soon as a codec fails, so that the codec must not.
type undecided struct {
	into any
	most int64 // bytes it may have
	err  error
}

// A codec is gRPC's own, but leaves it to an undecided to tell what went wrong,
// and tells an answer when it has been sent.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(b mem.BufferSlice, v any) error {
	r, ok := v.(*undecided)
	switch {
	case !ok:
		return c.CodecV2.Unmarshal(b, v)
	case int64(b.Len()) > r.most:
		r.err = tooLarge(r.most)
	case c.CodecV2.Unmarshal(b, r.into) != nil:
		r.err = fault.Field("body", "is not the message of this method")
	}
	return nil
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*answer); ok {
		return a.marshal(c.CodecV2)
	}
	return c.CodecV2.Marshal(v)
}

// unknown answers a call of a method there is none of.
func (c *chain) unknown(_ any, ss grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(ss)
	return fault.New(fault.Unimplemented, "Unimplemented: there is no method %s", strings.ToValidUTF8(name, "?"))
}

func (c *chain) begin(ctx context.Context, method string) *call {
	c.metrics.inFlight.Inc()
	k := &call{origin: originOf(ctx), start: time.Now()}
	if len(c.proxies) > 0 {
		k.origin.remote = c.proxies.Client(k.origin.remote, metadata.ValueFromIncomingContext(ctx, ForwardedFor))
	}
	k.from = Neighborhood(k.origin.remote)
	r, ok := c.rules[method]
	if !ok {
		r = rule{name: "unknown"}
	}
	k.rule = r
	return k
}

// admit finds out who is calling and puts that on the context.
func (c *chain) admit(ctx context.Context, k *call) (context.Context, error) {
	actor := resource.Actor{RequestID: k.origin.id, Remote: k.origin.remote}
	if !k.rule.open {
		if k.origin.err != nil {
			return ctx, k.origin.err
		}
		caller, err := c.authenticate(ctx, k.origin)
		if err != nil {
			return ctx, err
		}
		k.subject, k.tenant = caller.Identity, tenantOf(caller.Identity)
		if conn := connOf(ctx); conn != nil {
			conn.Admit()
		}
		actor.Subject, actor.Act = caller.Identity, caller.Act
		ctx = authz.WithCaller(ctx, caller)
	}
	return context.WithValue(resource.WithActor(ctx, actor), callKey{}, k), nil
}

// protect runs f and turns a panic into an error.
func protect(f func() (any, error)) (resp any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}

// end records how a call went and returns its error as a status.
func (c *chain) end(ctx context.Context, k *call, err error) error {
	took := time.Since(k.start)
	if err == nil {
		c.metrics.observe(k.rule.name, 0, took)
		level := slog.LevelInfo
		if k.rule.read {
			level = slog.LevelDebug
		}
		c.record(ctx, level, k, 0, took, nil)
		return nil
	}
	if n, ok := errors.AsType[notReceived](err); ok {
		return c.endUnread(ctx, k, n.err)
	}
	f := fault.From(overdue(ctx, err))
	c.metrics.observe(k.rule.name, f.Code, took)
	level, cause := slog.LevelInfo, error(nil)
	if ours(f.Code) {
		level, cause = slog.LevelError, f.Cause
	}
	c.record(ctx, level, k, f.Code, took, cause)
	return statusOf(f, c.domain, k.origin.id).Err()
}

// endUnread records a call whose message did not come. The client has its status
// already.
func (c *chain) endUnread(ctx context.Context, k *call, err error) error {
	code, took := fault.Code(status.Code(err)), time.Since(k.start)
	c.metrics.observe(k.rule.name, code, took)
	c.record(ctx, slog.LevelInfo, k, code, took, nil)
	return err
}

// ours tells whether a code means that the service, not the client, is at fault.
func ours(code fault.Code) bool {
	return code == fault.Internal || code == fault.Unavailable || code == fault.DeadlineExceeded
}

// record writes one line about a call: never its token, its body or its query.
func (c *chain) record(ctx context.Context, level slog.Level, k *call, code fault.Code, took time.Duration, cause error) {
	if !c.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", k.rule.name), slog.Int("code", int(code)), slog.String("took", took.Round(time.Microsecond).String()),
		slog.String("request", k.origin.id), slog.String("remote", k.origin.remote), slog.String("caller", string(k.subject)),
	}
	if cause != nil {
		attrs = append(attrs, slog.Any("cause", cause))
	}
	c.log.LogAttrs(ctx, level, "call", attrs...)
}

// An origin is where a call came from, whichever protocol brought it.
type origin struct {
	id     string // of the request, for the log and for who asks about it
	remote string // the caller's address, without its port
	token  string // the caller's credential
	err    error  // why there is no token
}

// bearerOf returns the bearer token of a call.
func bearerOf(ctx context.Context) (string, error) {
	o := originOf(ctx)
	return o.token, o.err
}

type originKey struct{}

// originOf returns where a call came from. The gateway has put it on the
// context; a call over gRPC has it in its metadata.
func originOf(ctx context.Context) origin {
	if o, ok := ctx.Value(originKey{}).(*origin); ok {
		return *o
	}
	o := origin{id: requestID(metadata.ValueFromIncomingContext(ctx, requestIDKey))}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		o.remote = host(p.Addr.String())
	}
	o.token, o.err = token.Bearer(metadata.ValueFromIncomingContext(ctx, "authorization"), false)
	return o
}

const (
	requestIDKey = "x-request-id"
	maxRequestID = 128
)

// requestID returns the id a client gave its request, if it is one that can
// stand in a log and a header, or else a new one.
func requestID(given []string) string {
	if len(given) == 1 && sane(given[0]) {
		return given[0]
	}
	var b [12]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func sane(id string) bool {
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("-_.:/+=", rune(c)) {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}
