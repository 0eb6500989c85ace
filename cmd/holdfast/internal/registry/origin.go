package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// origins returns the origins of a package: index, sbom, or both.
func origins(p *findingspb.ImagePackage) string {
	var kinds []string
	for _, o := range p.GetOrigins() {
		if !slices.Contains(kinds, o.GetKind()) {
			kinds = append(kinds, o.GetKind())
		}
	}
	return strings.Join(kinds, ", ")
}

// differences returns the number of packages that are only in attached SBOMs, or only in
// the files of an image.
func differences(i *findingspb.Inspection) string {
	if len(i.GetSboms()) == 0 {
		return ""
	}
	c := i.GetCoverage()
	if i.GetState() != findingspb.Inspection_STATE_INDEXED {
		return "; " + noun.Count(c.GetPackages(), "package") + " in attached SBOMs"
	}
	return fmt.Sprintf("; %d only in attached SBOMs, %d only in files", c.GetSbomOnly(), c.GetIndexOnly())
}
