package api

import (
	"context"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// isWatch reports whether a method sends events for as long as its call lasts. HTTP
// serves such a method as server-sent events: its messages have a position, and its
// request has the position to continue from.
func isWatch(m protoreflect.MethodDescriptor) bool {
	r, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	return r.GetGet() != "" && m.IsStreamingServer() && !m.IsStreamingClient()
}

// watch returns the handler of a method that watches.
func (g *gateway) watch(b binding) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		s := &eventStream{g: g, w: w, r: r, binding: b, params: params}
		err := g.local.stream(b.method, s)
		if err == nil {
			return
		}
		if !s.started {
			g.fail(w, r, status.Convert(err))
			return
		}
		s.fail(status.Convert(err))
	}
}

// An eventStream is the stream of a call that came over HTTP. It implements
// grpc.ServerStream.
type eventStream struct {
	g       *gateway
	w       http.ResponseWriter
	r       *http.Request
	binding binding
	params  map[string]string
	read    bool // whether the request was read
	started bool // whether an event was sent
}

func (s *eventStream) Context() context.Context     { return s.r.Context() }
func (s *eventStream) SetHeader(metadata.MD) error  { return nil }
func (s *eventStream) SendHeader(metadata.MD) error { return nil }
func (s *eventStream) SetTrailer(metadata.MD)       {}

// RecvMsg reads the request, which is the only message of the client. A browser that
// reconnects repeats the address and sends the last position in a header.
func (s *eventStream) RecvMsg(m any) error {
	if s.read {
		return io.EOF
	}
	s.read = true
	in := m.(proto.Message)
	if err := s.g.read(s.r.Context(), s.w, s.r, s.binding, s.params, in); err != nil {
		return err
	}
	if last := s.r.Header.Get("Last-Event-ID"); last != "" {
		position := in.ProtoReflect().Descriptor().Fields().ByName("position")
		in.ProtoReflect().Set(position, protoreflect.ValueOfString(last))
	}
	return nil
}

// SendMsg sends a message as one event. Its JSON is one line.
func (s *eventStream) SendMsg(m any) error {
	message := m.(proto.Message)
	data, err := s.g.encoder.Append(nil, message)
	if err != nil {
		return err
	}
	fields := message.ProtoReflect()
	position := fields.Get(fields.Descriptor().Fields().ByName("position")).String()
	return s.send("id: " + position + "\ndata: " + string(data) + "\n\n")
}

// fail sends the reason for the end of the stream to the client. Without the reason, the
// client would think that the connection was cut off and reconnect with an expired token.
func (s *eventStream) fail(st *status.Status) {
	data, err := s.g.encoder.Append(nil, st.Proto())
	if err == nil {
		_ = s.send("event: error\ndata: " + string(data) + "\n\n") // fails only if the client has gone
	}
}

func (s *eventStream) send(text string) error {
	if !s.started {
		s.started = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("X-Accel-Buffering", "no") // otherwise proxies would buffer the events
	}
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	if originOf(s.r.Context()).head {
		return context.Canceled
	}
	return http.NewResponseController(s.w).Flush()
}
