package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
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

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/access"
)

// A chain runs every call of both protocols. It gives the call an ID and a deadline,
// authenticates the caller and limits its resources. After the call it logs it,
// counts it in the metrics, and converts its fault to a status.
type chain struct {
	domain       string
	log          *slog.Logger
	metrics      *metrics
	authenticate func(context.Context, origin) (authz.Caller, error)
	rules        map[string]rule // by full method name, including aliases
	proxies      Proxies
	limit        func(context.Context) error // returns an error if the caller makes too many requests; nil: no limit
	tenant       func(context.Context, authz.Caller) resource.Tenant

	slow      callQuota // number of messages that arrive slowly
	streaming callQuota // number of streaming calls
	watching  callQuota // number of calls that watch
	unsent    callQuota // bytes of answers that clients have not read
	calls     *quota    // number of anonymous calls on gRPC connections that have not shown a valid token
	reading   *quota    // number of anonymous calls whose messages are being read
}

func newChain(cfg Config, authenticate func(context.Context, origin) (authz.Caller, error)) *chain {
	if cfg.Tenant == nil {
		cfg.Tenant = organizationOf
	}
	return &chain{
		domain: cfg.Domain, log: cfg.Log, metrics: newMetrics(cfg.Metrics, cfg.Counters.Denials, cfg.Version),
		authenticate: authenticate, rules: methodRules(), proxies: cfg.Proxies, limit: cfg.Admit, tenant: cfg.Tenant,
		slow:      newCallQuota(maxSlow, maxSlowByAddress, maxSlowAnonymous),
		streaming: newCallQuota(maxStreaming, maxStreamingByAddress, maxStreamingAnonymous),
		watching:  newCallQuota(maxWatching, maxWatchingByAddress, maxStreamingAnonymous),
		unsent:    newCallQuota(maxUnsent, maxUnsentByAddress, maxUnsentAnonymous),
		calls:     newQuota(maxAnonymousCalls),
		reading:   newQuota(maxAnonymousReading),
	}
}

// A call is one request to the API while the chain processes it.
type call struct {
	origin  origin
	rule    rule
	subject resource.UID // authenticated caller; "" before authentication
	claim   resource.Claim
	tenant  string // tenant of the subject
	network string // network that contains origin.remote; quotas count per network
	start   time.Time
	span    *trace.Span // nil if the gateway has started the span
}

type callKey struct{}

// callOf returns the call of a context that admit has returned.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// anonymous reports whether the caller is not authenticated.
func (k *call) anonymous() bool { return k.subject == "" }

// maxMessage returns the limit that the caller has for the message of a call, in
// bytes.
func (k *call) maxMessage() int64 {
	if k.anonymous() {
		return maxAnonymousMessage
	}
	return math.MaxInt64
}

// unary runs a call that has one answer.
func (c *chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	k := c.begin(ctx, info.FullMethod)
	defer c.metrics.inFlight.Dec()
	ctx = k.trace(ctx)
	defer k.span.End(nil)
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if !k.origin.gateway {
		_ = grpc.SetHeader(ctx, metadata.MD{requestIDKey: {k.origin.id}}) // fails only after the answer was sent
	}
	resp, err := recoverPanic(func() (any, error) {
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

// stream runs a call with streams. Only the caller sets its deadline.
func (c *chain) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := ss.Context()
	k := c.begin(ctx, info.FullMethod)
	defer c.metrics.inFlight.Dec()
	ctx = k.trace(ctx)
	defer k.span.End(nil)
	_, err := recoverPanic(func() (any, error) {
		ctx, err := c.admit(ctx, k)
		if err != nil {
			return nil, err
		}
		quota := c.streaming
		if k.rule.watch {
			quota = c.watching
		}
		if !quota.acquire(k, 1) {
			return nil, busy("calls with streams")
		}
		defer quota.release(k, 1)
		if k.anonymous() && compressed(ctx) {
			return nil, fault.Field("body", "must not be compressed")
		}
		sendUncompressed(ctx)
		return nil, next(srv, admittedStream{ss, ctx, c, k})
	})
	if _, foreign := status.FromError(err); err != nil && foreign {
		return err // err is already a gRPC status
	}
	return c.end(ctx, k, err)
}

// An admittedStream is a stream whose caller the chain has admitted.
type admittedStream struct {
	grpc.ServerStream
	ctx   context.Context
	chain *chain
	call  *call
}

func (a admittedStream) Context() context.Context { return a.ctx }

// RecvMsg returns no message that arrived after the caller has lost access.
func (a admittedStream) RecvMsg(m any) error {
	if g := gateOf(a.ctx); g != nil {
		g.open(a.call.maxMessage())
	}
	if err := a.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return access.Recheck(a.ctx)
}

// SendMsg sends nothing after the caller has lost access. It closes the connection if
// the client does not read earlier messages in time.
func (a admittedStream) SendMsg(m any) error {
	if err := a.recheck(); err != nil {
		return err
	}
	if a.call.origin.gateway {
		return a.ServerStream.SendMsg(m)
	}
	out := newAnswer(a.ctx, m, nil)
	late := time.AfterFunc(answerTime, out.closeConn)
	defer late.Stop()
	return a.ServerStream.SendMsg(out)
}

// recheck returns an error if the caller has lost access. A watch selects its events by
// the current grants of the caller, so it does not end if the caller loses one of
// several grants. It may last longer than the token, so the token is checked again.
func (a admittedStream) recheck() error {
	if !a.call.rule.watch {
		return access.Recheck(a.ctx)
	}
	_, err := a.chain.authenticate(a.ctx, a.call.origin)
	return err
}

// decodeInside returns a copy of d that reads requests and counts answers inside
// the chain, as the gateway does. So the server reads only messages of callers that
// may call the method. Bytes that are not a message are a bad request, whereas
// grpc-go would report an internal error.
func (c *chain) decodeInside(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	inside := *d
	inside.Methods = slices.Clone(d.Methods)
	for i, m := range d.Methods {
		name := "/" + d.ServiceName + "/" + m.MethodName
		inside.Methods[i].Handler = func(
			srv any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor,
		) (any, error) {
			info := &grpc.UnaryServerInfo{Server: srv, FullMethod: name}
			return chain(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
				out, err := m.Handler(srv, ctx, func(in any) error { return c.receive(ctx, decode, in) }, prepare)
				if err != nil {
					return nil, err
				}
				return c.answer(ctx, out)
			})
		}
	}
	return &inside
}

// A lazyRequest decodes a request. It keeps the error of the decoding, because
// grpc-go would answer the client if the codec returned the error.
type lazyRequest struct {
	into any
	most int64 // maximum size of the request, in bytes
	err  error
}

// A codec is the codec of gRPC, extended to lazyRequests and answers.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(b mem.BufferSlice, v any) error {
	r, ok := v.(*lazyRequest)
	switch {
	case !ok:
		return c.CodecV2.Unmarshal(b, v)
	case int64(b.Len()) > r.most:
		r.err = fault.Field("body", "must have at most %d bytes", r.most)
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

// unknown answers a call of a method that does not exist.
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
	k.network = resource.NetworkOf(k.origin.remote)
	r, ok := c.rules[method]
	if !ok {
		r = rule{name: "unknown"}
	}
	k.rule = r
	return k
}

// trace returns a context with the span of a call. The gateway has already started
// the spans of its calls.
func (k *call) trace(ctx context.Context) context.Context {
	if !trace.On() {
		return ctx
	}
	if k.origin.gateway {
		trace.FromContext(ctx).Name(k.rule.name)
		return ctx
	}
	parent := ""
	if given := metadata.ValueFromIncomingContext(ctx, trace.Header); len(given) == 1 {
		parent = given[0]
	}
	ctx, k.span = trace.Begin(ctx, k.rule.name, parent)
	return ctx
}

// admit authenticates the caller, if the method needs it, and returns a context
// with the caller and the call.
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
		k.subject, k.tenant = caller.Identity, string(c.tenant(ctx, caller))
		if conn := connOf(ctx); conn != nil {
			conn.Admit()
		}
		actor.Subject, actor.Act = caller.Identity, caller.Act
		ctx = authz.WithCaller(ctx, caller)
		if c.limit != nil {
			if err := c.limit(ctx); err != nil {
				return ctx, err
			}
		}
	}
	if k.rule.open {
		ctx = resource.WithClaim(ctx, &k.claim)
	}
	return context.WithValue(resource.WithActor(ctx, actor), callKey{}, k), nil
}

// recoverPanic runs f and turns a panic into an error.
func recoverPanic(f func() (any, error)) (resp any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}

// end records the result of a call and returns its error as a status.
func (c *chain) end(ctx context.Context, k *call, err error) error {
	if err == nil {
		level := slog.LevelInfo
		if k.rule.read {
			level = slog.LevelDebug
		}
		c.record(ctx, level, k, &fault.Error{})
		return nil
	}
	if e, ok := errors.AsType[receiveError](err); ok {
		st := status.Convert(e.err)
		c.record(ctx, slog.LevelInfo, k, &fault.Error{Code: fault.Code(st.Code()), Message: st.Message()})
		return e.err
	}
	f := fault.From(overdue(ctx, err))
	if name := f.Metadata["capability"]; f.Code == fault.PermissionDenied && name != "" {
		c.metrics.denials.Add(1, name)
	}
	level := slog.LevelInfo
	switch {
	case isServerError(f.Code):
		level = slog.LevelError
	case f.Code == fault.NotFound && k.rule.open && k.rule.read:
		level = slog.LevelDebug // at debug level, because a client may poll every second until the resource exists
	}
	c.record(ctx, level, k, f)
	return statusOf(f, c.domain, trace.Reference(ctx, k.origin.id)).Err()
}

// isServerError reports whether a code means that the server, and not the client,
// is at fault.
func isServerError(code fault.Code) bool {
	return code == fault.Internal || code == fault.Unavailable || code == fault.DeadlineExceeded
}

// maxReason is the number of bytes of an error message that are logged.
const maxReason = 256

// record counts a call in the metrics and logs a line about it. It never logs the token,
// the body or the query. The logged reason is the message that the client gets, which may
// contain a name or a key from the request, but no credential.
func (c *chain) record(ctx context.Context, level slog.Level, k *call, f *fault.Error) {
	took := time.Since(k.start)
	if span := trace.FromContext(ctx); span != nil {
		span.SetInt("rpc.grpc.status_code", int(f.Code))
		if isServerError(f.Code) {
			span.Fail()
		}
	}
	c.metrics.observe(k.rule.name, f.Code, took)
	if !c.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", k.rule.name), slog.String("code", f.Code.Name()),
		slog.String("took", took.Round(time.Microsecond).String()), slog.String("request", k.origin.id),
		slog.String("remote", k.origin.remote), slog.String("caller", string(cmp.Or(k.subject, k.claim.Proven))),
	}
	if asked := k.claim.Asked; asked != "" && asked != k.claim.Proven {
		attrs = append(attrs, slog.String("identity", string(asked)))
	}
	if f.Message != "" {
		reason := f.Message[:min(len(f.Message), maxReason)]
		attrs = append(attrs, slog.String("reason", strings.ToValidUTF8(reason, "")))
	}
	if isServerError(f.Code) && f.Cause != nil {
		attrs = append(attrs, slog.Any("cause", f.Cause))
	}
	c.log.LogAttrs(ctx, level, "call", attrs...)
}

// An origin describes the request of a call, independently of the protocol.
type origin struct {
	id      string   // request ID, for the log and the client
	remote  string   // caller's address, without its port
	token   string   // caller's credential
	err     error    // reason why there is no token
	gateway bool     // whether the call comes from the gateway, which has started the span and sent the ID
	ifMatch []string // values of the If-Match header
	head    bool     // whether the client asks only for the headers of the answer
}

// bearerOf returns the bearer token of a call.
func bearerOf(ctx context.Context) (string, error) {
	o := originOf(ctx)
	return o.token, o.err
}

type originKey struct{}

// originOf returns the origin of a call from the context, where the gateway stores
// it, or from the metadata of gRPC.
func originOf(ctx context.Context) origin {
	if o, ok := ctx.Value(originKey{}).(*origin); ok {
		return *o
	}
	o := origin{id: requestID(metadata.ValueFromIncomingContext(ctx, requestIDKey))}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		o.remote = resource.HostOf(p.Addr.String())
	}
	o.token, o.err = token.Bearer(metadata.ValueFromIncomingContext(ctx, "authorization"), false)
	return o
}

const requestIDKey = "x-request-id"

// goodRequestID matches the request IDs that may be written to a log and a header.
var goodRequestID = regexp.MustCompile(`^[0-9A-Za-z_.:/+=-]{1,128}$`)

// requestID returns the ID that a client gave its request if goodRequestID matches
// it, and a new ID otherwise.
func requestID(given []string) string {
	if len(given) == 1 && goodRequestID.MatchString(given[0]) {
		return given[0]
	}
	var b [12]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
