// Package registryapi has the methods about the registry: repos, tags, images,
// retention, upstreams, signers and the trash. It converts between messages and
// resources, and calls the service.
package registryapi

import (
	"context"

	"google.golang.org/grpc"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
)

// Services are the services that the methods call.
type Services struct {
	Registry *metadata.Service
	// Inspect returns the inspection of an image, or nil if the caller may not see it.
	Inspect func(ctx context.Context, repo resource.UID, digest string) (*findingspb.Inspection, error)
}

// A server implements the gRPC services.
type server struct {
	registrypb.UnsafeReposServiceServer
	registrypb.UnsafeTagsServiceServer
	registrypb.UnsafeImagesServiceServer
	ocipb.UnsafeOCIServiceServer
	ocipb.UnsafeTrashServiceServer
	ocipb.UnsafeRetentionServiceServer
	ocipb.UnsafeCopyServiceServer
	ocipb.UnsafeUpstreamsServiceServer
	ocipb.UnsafeSignersServiceServer
	ocipb.UnsafeSyncsServiceServer
	ocipb.UnsafeReplicationsServiceServer

	Services
}

// Register adds the gRPC services to r.
func Register(r grpc.ServiceRegistrar, services Services) {
	s := &server{Services: services}
	registrypb.RegisterReposServiceServer(r, s)
	registrypb.RegisterTagsServiceServer(r, s)
	registrypb.RegisterImagesServiceServer(r, s)
	ocipb.RegisterOCIServiceServer(r, s)
	ocipb.RegisterTrashServiceServer(r, s)
	ocipb.RegisterRetentionServiceServer(r, s)
	ocipb.RegisterCopyServiceServer(r, s)
	ocipb.RegisterUpstreamsServiceServer(r, s)
	ocipb.RegisterSignersServiceServer(r, s)
	ocipb.RegisterSyncsServiceServer(r, s)
	ocipb.RegisterReplicationsServiceServer(r, s)
}
