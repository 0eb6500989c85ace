package finding

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// ImagePURL returns the package URL of an image. The URL has no host, because the document is about the image in any
// registry.
func ImagePURL(path, digest string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return "pkg:oci/" + url.PathEscape(name) + "@" + strings.ReplaceAll(digest, ":", "%3A")
}

// Statement returns the statement of a VEX document about a finding in an image. e is the exception that applies to the
// finding, without a reason if the reason must not be known.
func (v Finding) Statement(image, digest string, e vuln.Exception) format.Statement {
	st := format.Statement{Name: v.ID, Aliases: v.Aliases, Status: format.StatusAffected, Time: v.FirstSeen,
		Text: "No fix is known."}
	if fixed := cmp.Or(v.FixedVersion, strings.Join(v.Fixed, " or ")); fixed != "" {
		st.Text = "Update " + v.Package.Name + " to " + fixed + "."
	}
	if v.State == StateExcepted {
		st.Status, st.Justification = format.StatusNotAffected, e.Justification
		st.Text = cmp.Or(e.Reason, "The organization has accepted this finding.")
	}
	p := format.Product{ID: image, Subcomponents: []string{v.Package.PURL}}
	if hash, ok := strings.CutPrefix(digest, "sha256:"); ok {
		p.SHA256 = hash
	}
	st.Products = []format.Product{p}
	return st
}
