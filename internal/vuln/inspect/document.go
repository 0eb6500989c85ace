package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// ErrNoSBOM is returned for a document that is not an SBOM, or not one about the image.
var ErrNoSBOM = errors.New("not an SBOM of the image")

// documentLimits are what an SBOM may cost. It has a hundredth of the bytes of an image.
var documentLimits = Limits{
	Bytes: evidence.MaxDocument, Layers: 1, Packages: 20_000, MemoryBytes: 512 << 20, Seconds: 10,
}

// A Document says what a document about an image is.
type Document struct {
	Format string // SPDX or CycloneDX
	Tool   string // that wrote it, or ""
}

// SBOM returns which packages a document says that an image has. It is read in a child,
// as an image is. It returns ErrNoSBOM if the document is something else, or is about other
// images; and otherwise the errors of Image. Of an SBOM with too many packages, the first
// are returned, with a warning.
func SBOM(ctx context.Context, document Layer, image string) (Result, error) {
	if !ready {
		return Result{}, errors.New("this program does not begin with IsChild")
	}
	limits := documentLimits.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, clockFactor*time.Duration(limits.Seconds)*time.Second, errSlow)
	defer cancel()
	r, err := runChild(ctx, []Layer{document}, limits, image)
	if err == nil && r.Document == nil {
		err = ErrNoSBOM
	}
	return r, err
}

// readDocument reads a document about an image, in the child.
func readDocument(frames *frameReader, req request) answer {
	if err := frames.next(); err != nil {
		return answer{Failed: err.Error()}
	}
	body, err := io.ReadAll(io.LimitReader(frames, req.Limits.Bytes+1))
	if err != nil {
		return answer{Failed: err.Error()}
	}
	return answerTo(body, req.Document, req.Limits.Packages)
}

// answerTo says what a document has about an image.
func answerTo(body []byte, image string, most int) answer {
	nothing := answer{Result: &Result{}}
	d, err := evidence.Open(body)
	if errors.Is(err, evidence.ErrUnknown) {
		return nothing
	}
	if err != nil {
		return answer{NotUnderstood: short(err.Error())}
	}
	if d.Subjects != nil && !slices.Contains(d.Subjects, image) {
		return nothing
	}
	content, err := d.SBOM()
	if errors.Is(err, evidence.ErrUnknown) {
		return nothing
	}
	if err != nil {
		return answer{NotUnderstood: short(err.Error())}
	}
	r := packagesOf(content, most)
	r.Document = &Document{Format: string(d.Format), Tool: short(content.Tool)}
	return answer{Result: &r}
}

// packagesOf returns the packages of an SBOM that have a package URL, each once.
func packagesOf(content evidence.SBOM, most int) Result {
	r := Result{}
	seen := map[[4]string]bool{}
	unnamed, others := 0, 0
	for _, c := range content.Packages {
		p, ok := componentOf(c)
		switch key := [4]string{p.Ecosystem, p.Name, p.Version, p.Purl}; {
		case !ok && c.PURL != "":
			others++
		case !ok:
			unnamed++
		case isImage(c.PURL), seen[key]:
		case len(r.Packages) == most:
			r.Warnings = append(r.Warnings, fmt.Sprintf("it has more than %d packages; the others are left out", most))
			return r
		default:
			seen[key] = true
			r.Packages = append(r.Packages, p)
		}
	}
	if unnamed > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d parts have no package URL, and are left out", unnamed))
	}
	if others > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d package URLs cannot be read, and are left out", others))
	}
	return r
}

// isImage reports whether a package URL is that of an image: SBOMs name what they are
// about.
func isImage(purl string) bool {
	return strings.HasPrefix(purl, "pkg:oci/") || strings.HasPrefix(purl, "pkg:docker/")
}

var pythonSeparators = regexp.MustCompile(`[-_.]+`)

// componentOf returns a package of an SBOM under the names that packages of images have.
func componentOf(c evidence.Package) (p Package, ok bool) {
	ecosystem, name, v, err := version.ParsePURL(c.PURL)
	if err != nil {
		return p, false
	}
	p = Package{Ecosystem: ecosystem, Name: name, Version: cmp.Or(v, c.Version), Purl: c.PURL}
	switch ecosystem {
	case "Go", "Packagist":
		p.Version = strings.TrimPrefix(p.Version, "v")
	case "PyPI":
		p.Name = pythonSeparators.ReplaceAllString(strings.ToLower(name), "-")
	}
	_, query, _ := strings.Cut(c.PURL, "?")
	query, _, _ = strings.Cut(query, "#")
	qualifiers, _ := url.ParseQuery(query) // what can be read of it
	switch {
	case strings.HasPrefix(c.PURL, "pkg:deb/"), strings.HasPrefix(c.PURL, "pkg:apk/"):
		name, v, _ := strings.Cut(cmp.Or(qualifiers.Get("upstream"), qualifiers.Get("origin")), "@")
		p.SourceName, p.SourceVersion = cmp.Or(name, p.Name), cmp.Or(v, p.Version)
	case strings.HasPrefix(c.PURL, "pkg:rpm/"):
		if epoch := qualifiers.Get("epoch"); epoch != "" && epoch != "0" && !strings.Contains(p.Version, ":") {
			p.Version = epoch + ":" + p.Version
		}
	}
	return p, p.Valid()
}
