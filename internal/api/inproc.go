package api

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// local calls methods in this process, through the same interceptor as the gRPC
// server, but without a connection. It implements grpc.ServiceRegistrar.
type local struct {
	intercept       grpc.UnaryServerInterceptor
	interceptStream grpc.StreamServerInterceptor
	services        []localService
	methods         map[string]localMethod // by full name
	streams         map[string]localStream // by full name
}

type localService struct {
	desc *grpc.ServiceDesc
	impl any
}

type localMethod struct {
	grpc.MethodDesc
	info *grpc.UnaryServerInfo
}

type localStream struct {
	grpc.StreamDesc
	impl any
}

func newLocal(unary grpc.UnaryServerInterceptor, stream grpc.StreamServerInterceptor) *local {
	return &local{
		intercept: unary, interceptStream: stream, methods: map[string]localMethod{}, streams: map[string]localStream{},
	}
}

// RegisterService adds a service's methods.
func (l *local) RegisterService(d *grpc.ServiceDesc, impl any) {
	l.services = append(l.services, localService{d, impl})
	for _, m := range d.Methods {
		name := "/" + d.ServiceName + "/" + m.MethodName
		l.methods[name] = localMethod{m, &grpc.UnaryServerInfo{Server: impl, FullMethod: name}}
	}
	for _, m := range d.Streams {
		l.streams["/"+d.ServiceName+"/"+m.StreamName] = localStream{m, impl}
	}
}

// call runs a method and returns the headers that it has set. read fills in the
// request and write encodes the answer. Both run inside the chain, which handles
// their errors. read runs only if the caller may call the method.
func (l *local) call(
	ctx context.Context, method string, read, write func(context.Context, proto.Message) error,
) (metadata.MD, error) {
	m, ok := l.methods[method]
	if !ok {
		return nil, fmt.Errorf("no method %s", method)
	}
	stream := &headerStream{method: method}
	ctx = grpc.NewContextWithServerTransportStream(ctx, stream)
	_, err := l.intercept(ctx, nil, m.info, func(ctx context.Context, _ any) (any, error) {
		out, err := m.Handler(m.info.Server, ctx, func(in any) error { return read(ctx, in.(proto.Message)) }, prepare)
		if err != nil {
			return nil, err
		}
		return out, write(ctx, out.(proto.Message))
	})
	return stream.header, err
}

// stream runs a method that sends its answers to s.
func (l *local) stream(method string, s grpc.ServerStream) error {
	m, ok := l.streams[method]
	if !ok {
		return fmt.Errorf("no method %s", method)
	}
	return l.interceptStream(m.impl, s, &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}, m.Handler)
}

// A headerStream collects the headers that a method sets.
type headerStream struct {
	method string
	mu     sync.Mutex
	header metadata.MD
}

func (s *headerStream) Method() string                  { return s.method }
func (s *headerStream) SendHeader(md metadata.MD) error { return s.SetHeader(md) }
func (s *headerStream) SetTrailer(metadata.MD) error    { return nil }

func (s *headerStream) SetHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.header == nil {
		s.header = md
		return nil
	}
	s.header = metadata.Join(s.header, md)
	return nil
}
