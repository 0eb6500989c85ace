package api

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/fault"
)

// A vital tells that the server is alive, and so is every service it has by any
// of its names. Like /healthz it says nothing of what they depend on.
type vital struct {
	*health.Server
	draining context.Context
}

// registerHealth lets clients ask after s and the services that it has so far,
// and watch them until draining is done.
func (c *chain) registerHealth(draining context.Context, s *grpc.Server) {
	v := vital{health.NewServer(), draining}
	for name := range s.GetServiceInfo() {
		v.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	s.RegisterService(c.decodeInside(&healthpb.Health_ServiceDesc), v)
}

// Check is of healthpb.HealthServer. It returns fault.NotFound for a service
// there is none of.
func (v vital) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	resp, err := v.Server.Check(ctx, r)
	if status.Code(err) == codes.NotFound {
		return nil, fault.New(fault.NotFound, "Not found: there is no service of that name")
	}
	return resp, err
}

// Watch is of healthpb.HealthServer. It ends when the server is about to: who
// watches does so for ever, and would hold the server up.
func (v vital) Watch(r *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(v.draining, cancel)()
	err := v.Server.Watch(r, watch{stream, ctx})
	if v.draining.Err() != nil {
		return nil
	}
	return err
}

// A watch is a stream that ends with its context.
type watch struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context
}

// Context is of grpc.ServerStream.
func (w watch) Context() context.Context { return w.ctx }
