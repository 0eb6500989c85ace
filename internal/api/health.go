package api

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// A healthServer reports that the server and all its services, under all their
// names, are serving until the server shuts down. It does not check their
// dependencies.
type healthServer struct {
	*health.Server
	names    []string // names of all services, and "" for the whole server
	draining context.Context
}

// registerHealth adds a service with which clients check and watch the health of s and
// its services. Watches end when draining ends.
func (c *chain) registerHealth(draining context.Context, s *grpc.Server) *health.Server {
	h := healthServer{health.NewServer(), []string{""}, draining}
	for name := range s.GetServiceInfo() {
		h.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
		h.names = append(h.names, name)
	}
	s.RegisterService(c.decodeInside(&healthpb.Health_ServiceDesc), h)
	return h.Server
}

// Check returns the health of a service, or fault.NotFound if the service does not exist.
func (h healthServer) Check(
	ctx context.Context, r *healthpb.HealthCheckRequest,
) (*healthpb.HealthCheckResponse, error) {
	resp, err := h.Server.Check(ctx, r)
	if status.Code(err) == codes.NotFound {
		return nil, fault.New(fault.NotFound, "Not found: there is no service of that name")
	}
	return resp, err
}

// List returns the health of the server and of all its services. The method of grpc-go
// returns an error if there are more than 100 services.
func (h healthServer) List(
	ctx context.Context, _ *healthpb.HealthListRequest,
) (*healthpb.HealthListResponse, error) {
	statuses := make(map[string]*healthpb.HealthCheckResponse, len(h.names))
	for _, name := range h.names {
		one, err := h.Server.Check(ctx, &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			return nil, err
		}
		statuses[name] = one
	}
	return &healthpb.HealthListResponse{Statuses: statuses}, nil
}

// Watch sends the health of a service whenever it changes. It ends when the server starts
// to stop, because clients that watch would otherwise keep the server from stopping.
func (h healthServer) Watch(
	r *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse],
) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	err := h.Server.Watch(r, watchStream{stream, ctx})
	if h.draining.Err() != nil {
		return nil
	}
	return err
}

// A watchStream is a stream with another context.
type watchStream struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context
}

func (w watchStream) Context() context.Context { return w.ctx }
