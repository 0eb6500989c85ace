package vulnapi

import (
	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// Kinds of origins of a package.
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

// firstOrigin returns the kind of the most reliable origin of a package. The files of
// the image are more reliable than an SBOM.
func firstOrigin(origins []registry.Origin) string {
	if len(origins) > 0 && origins[0].Manifest != "" {
		return originSBOM
	}
	return originIndex
}

func sbomOf(b registry.SBOM) *pb.AttachedSbom {
	return &pb.AttachedSbom{Origin: originOf(b.Origin), Format: b.Format, Tool: b.Tool, Packages: int32(len(b.IDs)),
		Warnings: b.Warnings}
}
