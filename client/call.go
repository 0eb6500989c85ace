package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A line is what calls to one address have in common.
type line struct {
	address string
	private bool                                                      // a token may only go through TLS
	tokens  func(ctx context.Context, refused string) (string, error) // nil: calls bring their own, or none
}

func newLine(cfg Config, address string) *line {
	u, err := url.Parse(address)
	encrypted := err != nil || u.Scheme != "http"
	return &line{address: Audience(address), private: encrypted || (InTheOpen(address) && !cfg.InTheOpen)}
}

func (l *line) dial(cfg Config) (*grpc.ClientConn, error) {
	u, err := url.Parse(l.address)
	if err != nil {
		return nil, err
	}
	security, err := cfg.transport(u)
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent(cmp.Or(cfg.UserAgent, "holdfast-go")),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream),
	}
	return grpc.NewClient(hostPort(u), slices.Concat(options, cfg.Options)...)
}

// A bearer is a token on its way with one call. gRPC refuses to send a private
// one in the open, whatever the connection was made to be.
type bearer struct {
	token   string
	private bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.private }

// carrying is the options of a call that carries a token; none for "".
func (l *line) carrying(token string) []grpc.CallOption {
	if token == "" {
		return nil
	}
	return []grpc.CallOption{grpc.PerRPCCredentials(bearer{token, l.private})}
}

// bringsOwn tells whether a call has credentials of its own.
func bringsOwn(opts []grpc.CallOption) bool {
	return slices.ContainsFunc(opts, func(o grpc.CallOption) bool {
		_, ok := o.(grpc.PerRPCCredsCallOption)
		return ok
	})
}

// unary makes a call with a token, and once more with another if the server does
// not take the first: it has done nothing then. What goes wrong is an Error.
func (l *line) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := func(token string) error {
		var header metadata.MD
		all := slices.Concat(l.carrying(token), opts, []grpc.CallOption{grpc.Header(&header)})
		return l.failure(method, header, invoke(ctx, method, req, reply, conn, all...))
	}
	if l.tokens == nil || bringsOwn(opts) {
		return call("")
	}
	token, err := l.tokens(ctx, "")
	if err != nil {
		return err
	}
	err = call(token)
	if token == "" || status.Code(err) != codes.Unauthenticated {
		return err
	}
	another, renewed := l.tokens(ctx, token)
	if renewed != nil {
		return renewed
	}
	if another == token {
		return err
	}
	return call(another)
}

// stream begins a stream with a token. One that the server does not take is not
// begun again: what was sent on it is gone.
func (l *line) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	begin grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token := ""
	if l.tokens != nil && !bringsOwn(opts) {
		var err error
		if token, err = l.tokens(ctx, ""); err != nil {
			return nil, err
		}
	}
	s, err := begin(ctx, desc, conn, method, slices.Concat(l.carrying(token), opts)...)
	if err != nil {
		return nil, l.failure(method, nil, err)
	}
	return stream{s, l, method}, nil
}

// A stream ends with an Error.
type stream struct {
	grpc.ClientStream
	line   *line
	method string
}

// RecvMsg receives the next message, and returns io.EOF after the last.
func (s stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	header, _ := s.Header() // there may be none
	return s.line.failure(s.method, header, err)
}
