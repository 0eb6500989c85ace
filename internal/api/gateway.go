package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/gen/openapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// A gateway serves the methods as JSON over HTTP.
type gateway struct {
	domain  string
	realm   string
	maxBody int64
	routes  map[string]*runtime.ServeMux // by collection, because a mux tries its routes one after another
	noRoute *runtime.ServeMux            // handles paths without a collection
	local   *local
	chain   *chain
	encoder wire.Encoder
	buffers sync.Pool // contains *[]byte
	gzip    *compressor
}

func newGateway(cfg Config, l *local, c *chain) *gateway {
	g := &gateway{domain: cfg.Domain, realm: cfg.Audience, maxBody: cfg.MaxBody, local: l, chain: c, gzip: newCompressor()}
	g.buffers.New = func() any { return new([]byte) }
	g.routes, g.noRoute = map[string]*runtime.ServeMux{}, g.newMux()
	for _, b := range bindings() {
		g.handle(b.verb, b.path, g.handler(b))
	}
	g.handle(http.MethodGet, "/openapi.json", g.serveOpenAPI)
	return g
}

// handle serves a route with h.
func (g *gateway) handle(verb, path string, h runtime.HandlerFunc) {
	mux := g.routes[collection(path)]
	if mux == nil {
		mux = g.newMux()
		g.routes[collection(path)] = mux
	}
	err := mux.HandlePath(verb, path, func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		if p, ok := w.(*probe); ok {
			p.found = true
			return
		}
		h(w, r, params)
	})
	if err != nil {
		panic(fmt.Sprintf("route %s %s: %v", verb, path, err)) // the routes are part of the program, so an error is a bug
	}
}

// A probe is a ResponseWriter that only finds out whether a request has a route. The
// request is not served.
type probe struct{ found bool }

func (p *probe) Header() http.Header         { return http.Header{} }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(int)             {}

// allowed returns the HTTP methods that the path of a request accepts.
func (g *gateway) allowed(r *http.Request) (verbs []string) {
	for _, verb := range []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		asked, p := *r, &probe{}
		asked.Method = verb
		if mux := g.routes[collection(r.URL.Path)]; mux != nil {
			mux.ServeHTTP(p, &asked)
		}
		if !p.found {
			continue
		}
		verbs = append(verbs, verb)
		if verb == http.MethodGet {
			verbs = append(verbs, http.MethodHead)
		}
	}
	return verbs
}

func (g *gateway) newMux() *runtime.ServeMux {
	return runtime.NewServeMux(
		runtime.WithDisablePathLengthFallback(), // otherwise a header could override the method
		runtime.WithRoutingErrorHandler(g.routingError),
		runtime.WithErrorHandler(g.pathError),
	)
}

// collection returns the first three segments of a path or a template, without a
// verb: /iam/v2beta1/groups.
func collection(path string) string {
	end := 0
	for range 3 {
		i := strings.IndexByte(path[min(end+1, len(path)):], '/')
		if i < 0 {
			end = len(path)
			break
		}
		end += 1 + i
	}
	name, _, _ := strings.Cut(path[:end], ":")
	return name
}

// A binding is one http option of a method. It defines how an HTTP request becomes the
// request message.
type binding struct {
	method     string // full name, as gRPC writes it
	verb       string // GET, POST …
	path       string // template of the path
	input      protoreflect.MessageDescriptor
	body       string // field that contains the body, "*" for all fields, "" for none
	mask       protoreflect.FieldDescriptor
	deprecated bool // whether the method belongs to version 1
	exchange   bool // whether the method belongs to the token service
	watch      bool // whether the method answers with server-sent events
}

// compressible reports whether answers may be compressed. These are the answers of
// reads, except the tokens of an exchange. The length of a compressed answer depends
// on its repetitions. An attacker who sees the length and can insert text into the
// answer can guess its other content (BREACH). So an answer with a secret is never
// compressed: only the call that creates a secret returns it.
func (b binding) compressible() bool { return b.verb == http.MethodGet && !b.exchange }

// bindings returns every binding, the least specific first, because the mux tries
// the last one first, and "**" also matches the empty path.
func bindings() []binding {
	var list []binding
	wire.EachService(func(s protoreflect.ServiceDescriptor, in wire.Package) {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			r, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			if r == nil || m.IsStreamingClient() || m.IsStreamingServer() && !isWatch(m) {
				continue // the method is available only over gRPC
			}
			for _, r := range append([]*annotations.HttpRule{r}, r.GetAdditionalBindings()...) {
				b := binding{method: "/" + string(s.FullName()) + "/" + string(m.Name()), input: m.Input(), body: r.GetBody()}
				b.watch = isWatch(m)
				b.verb, b.path = verbAndPath(r)
				b.deprecated = in.Deprecated
				b.exchange = strings.HasPrefix(b.path, "/sts/")
				if f := m.Input().Fields().ByName("update_mask"); b.verb == http.MethodPatch && b.body != "*" {
					b.mask = f
				}
				list = append(append(list, b), b.underEarlierNames()...)
			}
		}
	})
	slices.SortStableFunc(list, func(x, y binding) int { return cmp.Compare(specificity(x.path), specificity(y.path)) })
	return list
}

// earlierNames are pairs of paths. The first is a path of the current version. The second
// is the path of the same resource in version 1, but with the current version number.
// They exist because clients migrate to a later version by replacing only the version in
// their paths.
var earlierNames = [][2]string{
	{"/iam/v2beta1/roleBindings", "/iam/v2beta1/rolebindings"},
	{"/iam/v2beta1/roleBindings:batchCreate", "/iam/v2beta1/rolebindings/batch/{parent=**}"},
	{"/iam/v2beta1/groupInvites", "/iam/v2beta1/group_invites"},
	{"/iam/v2beta1/accountAssociations", "/iam/v2beta1/account_associations"},
	{
		"/iam/v2beta1/accountAssociations/{uid=**}:checkAccountAssociation",
		"/iam/v2beta1/account_associations/{uid=**}:check",
	},
	{"/iam/v2beta1/identities:lookupIdentity", "/iam/v2beta1/identities/lookup"},
	{"/iam/v2beta1/identities:updateIdentityMetadata", "/iam/v2beta1/identities/metadata"},
}

// underEarlierNames returns b once for each path that it had in version 1.
func (b binding) underEarlierNames() (aliases []binding) {
	for _, names := range earlierNames {
		rest, ok := strings.CutPrefix(b.path, names[0])
		if ok {
			old := b
			old.path = names[1] + rest
			aliases = append(aliases, old)
		}
	}
	return aliases
}

// specificity is greater for the template that must win if two templates match.
// A template that ends in a verb wins, then one without "**", then one with more
// literal segments.
func specificity(path string) int {
	n := 0
	last := path[strings.LastIndexByte(path, '/')+1:]
	if i := strings.LastIndexByte(last, ':'); i > strings.LastIndexByte(last, '}') {
		n += 1000
	}
	if strings.Contains(path, "**") {
		n -= 500
	}
	for segment := range strings.SplitSeq(path, "/") {
		if !strings.ContainsAny(segment, "{*}") {
			n++
		}
	}
	return n
}

func verbAndPath(r *annotations.HttpRule) (verb, path string) {
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	}
	return "", ""
}

// ServeHTTP answers one request.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, span := trace.Begin(r.Context(), "HTTP", r.Header.Get(trace.Header))
	defer span.End(nil)
	o := &origin{gateway: true, id: requestID(r.Header["X-Request-Id"]), remote: resource.HostOf(r.RemoteAddr)}
	o.token, o.err = token.Bearer(r.Header.Values("Authorization"), true)
	o.head, o.ifMatch = r.Method == http.MethodHead, r.Header["If-Match"]
	h := w.Header()
	h.Set("X-Request-Id", o.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	r = r.WithContext(context.WithValue(ctx, originKey{}, o))
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet // net/http sends the headers of the answer without its body
	}
	if path := canonical(r.Method, r.URL.Path); path != r.URL.Path {
		u := *r.URL
		u.Path, u.RawPath = path, "" // the mux uses Path, in which %2F is an ordinary slash
		r.URL = &u
	}
	mux := g.routes[collection(r.URL.Path)]
	if mux == nil {
		mux = g.noRoute
	}
	mux.ServeHTTP(w, r)
}

// canonical returns a path in the form of the routes: with the beta version of this
// API, and without a trailing slash. It keeps the slash in requests that change or
// delete a resource, because the client may have lost the name of a child after it.
func canonical(method, path string) string {
	if domain, rest, ok := strings.Cut(path, "/v2/"); ok &&
		slices.Contains([]string{"/iam", "/registry", "/vulnerabilities", "/events", "/ping"}, domain) {
		path = domain + "/v2beta1/" + rest
	}
	if len(path) > 1 && method != http.MethodPatch && method != http.MethodDelete {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// handler serves one binding.
func (g *gateway) handler(b binding) runtime.HandlerFunc {
	if b.watch {
		return g.watch(b)
	}
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		if b.deprecated {
			w.Header().Set("Deprecation", deprecatedSince)
			w.Header().Set("Link", `<`+migration+`>; rel="deprecation"; type="text/markdown"`)
		}
		buf, sent := g.buffers.Get().(*[]byte), func() {}
		defer func() {
			sent()
			if cap(*buf) <= maxPooled {
				g.buffers.Put(buf)
			}
		}()
		*buf = (*buf)[:0]
		header, err := g.local.call(r.Context(), b.method,
			func(ctx context.Context, in proto.Message) error { return g.read(ctx, w, r, b, params, in) },
			func(ctx context.Context, out proto.Message) (err error) {
				if version := etag(out); version != "" {
					w.Header().Set("ETag", version)
				}
				if err = g.encode(buf, out); err == nil {
					sent, err = g.chain.countAnswer(callOf(ctx), len(*buf))
				}
				return err
			})
		for k, values := range header {
			w.Header()[http.CanonicalHeaderKey(k)] = values
		}
		if err != nil {
			g.fail(w, r, status.Convert(err))
			return
		}
		body := *buf
		if b.compressible() {
			body = g.gzip.compress(w.Header(), r, body)
		}
		send(w, http.StatusOK, body)
	}
}

// maxPooled is the size of the largest buffer that is reused. Most answers are
// much smaller than the largest.
const maxPooled = 1 << 20

// Version 1 is deprecated since this day (RFC 9745).
const (
	deprecatedSince = "@1793491200" // 2026-11-01
	migration       = "https://github.com/holdfast-dev/holdfast/blob/main/docs/migrating-v1.md"
)

// encode appends an answer to buf. For Empty it appends nothing, not even an empty
// object.
func (g *gateway) encode(buf *[]byte, m proto.Message) (err error) {
	if _, empty := m.(*emptypb.Empty); !empty {
		*buf, err = g.encoder.Append(*buf, m)
	}
	return err
}

func send(w http.ResponseWriter, code int, body []byte) {
	if len(body) > 0 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails only if the client has gone
}

// fail answers with an error. Clients of the token service read its code from the
// first 4 KiB of the body to decide whether to retry.
func (g *gateway) fail(w http.ResponseWriter, r *http.Request, st *status.Status) {
	body, err := g.encoder.Append(nil, st.Proto())
	if err != nil { // a detail has an unknown type: omit the details
		body, _ = g.encoder.Append(nil, status.New(st.Code(), strings.ToValidUTF8(st.Message(), "?")).Proto())
	}
	if st.Code() == codes.Unauthenticated {
		challenge := `Bearer realm="` + g.realm + `"`
		if r.Header.Get("Authorization") != "" { // RFC 6750: a request without a credential gets no error code
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	for _, d := range st.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			w.Header().Set("Retry-After", fault.RetryAfter(retry.GetRetryDelay().AsDuration()))
		}
	}
	send(w, runtime.HTTPStatusFromCode(st.Code()), body)
}

// routingError answers a request that matches no route.
func (g *gateway) routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
	r *http.Request, code int) {
	f := fault.New(fault.NotFound, "Not found: there is nothing at this path")
	switch code {
	case http.StatusMethodNotAllowed:
		g.refuseMethod(w, r)
		return
	case http.StatusBadRequest:
		f = fault.Field("path", "must start with a slash")
	}
	g.refuse(w, r, f)
}

// refuseMethod answers a request whose path accepts only other HTTP methods. Its code
// is Unimplemented, which clients of the API expect.
func (g *gateway) refuseMethod(w http.ResponseWriter, r *http.Request) {
	if _, ok := w.(*probe); ok {
		return
	}
	verbs := strings.Join(g.allowed(r), ", ")
	w.Header().Set("Allow", verbs)
	g.refuse(&statusWriter{w, http.StatusMethodNotAllowed}, r,
		fault.New(fault.Unimplemented, "Unimplemented: this path takes %s", verbs))
}

// A statusWriter is a ResponseWriter that replaces the status of the answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(int) { w.ResponseWriter.WriteHeader(w.status) }

// serveOpenAPI serves the description of the API.
func (g *gateway) serveOpenAPI(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	w.Header().Add("Vary", "Accept-Encoding")
	if !acceptsGzip(r.Header["Accept-Encoding"]) {
		send(w, http.StatusOK, openapi.Document)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	send(w, http.StatusOK, openapiGzip())
}

// pathError answers a request whose path is not well escaped.
func (g *gateway) pathError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
	r *http.Request, _ error) {
	g.refuse(w, r, fault.Field("path", "has a malformed escape"))
}

// refuse answers a request that matches no method.
func (g *gateway) refuse(w http.ResponseWriter, r *http.Request, f *fault.Error) {
	g.fail(w, r, statusOf(f, g.domain, originOf(r.Context()).id))
}
