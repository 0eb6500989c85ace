package registry

import (
	"fmt"
	"slices"
	"strings"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// origins says how a package is known.
func origins(p *findingspb.ImagePackage) string {
	var all []string
	for _, o := range p.GetOrigins() {
		if !slices.Contains(all, o.GetKind()) {
			all = append(all, o.GetKind())
		}
	}
	return strings.Join(all, ", ")
}

// differences says in how many packages attached SBOMs and the files of an image differ.
func differences(i *findingspb.Inspection) string {
	if len(i.GetSboms()) == 0 {
		return ""
	}
	c := i.GetCoverage()
	if i.GetState() != findingspb.Inspection_STATE_INDEXED {
		return fmt.Sprintf("; %d packages in attached SBOMs", c.GetPackages())
	}
	return fmt.Sprintf("; %d only in attached SBOMs, %d in none of them", c.GetSbomOnly(), c.GetIndexOnly())
}
