package v2

import (
	"context"

	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
)

func (*server) Ping(context.Context, *pingpb.PingRequest) (*pingpb.PingResponse, error) {
	return &pingpb.PingResponse{Response: "pong"}, nil
}
