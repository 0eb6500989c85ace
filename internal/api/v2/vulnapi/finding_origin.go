package vulnapi

import (
	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// The kinds of origins.
const (
	originIndex = "index"
	originSBOM  = "sbom"
)

func originOf(o registry.Origin) *pb.Origin {
	if o.Manifest == "" {
		return &pb.Origin{Kind: originIndex}
	}
	return &pb.Origin{
		Kind: originSBOM, ManifestDigest: o.Manifest, AttachedBy: string(o.By), AttachTime: wire.Time(o.Time),
	}
}

// firstOrigin returns the kind of the origin that says most about a package: its files come
// before what is claimed.
func firstOrigin(all []registry.Origin) string {
	if len(all) > 0 && all[0].Manifest != "" {
		return originSBOM
	}
	return originIndex
}

func sbomOf(b registry.SBOM) *pb.AttachedSbom {
	return &pb.AttachedSbom{Origin: originOf(b.Origin), Format: b.Format, Tool: b.Tool, Packages: int32(len(b.IDs)),
		Warnings: b.Warnings}
}
