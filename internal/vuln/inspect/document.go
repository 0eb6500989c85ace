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

	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// ErrNoSBOM is returned for a document that is not an SBOM, or that is about other images.
var ErrNoSBOM = errors.New("not an SBOM of the image")

// documentLimits are the limits for an SBOM. An SBOM is about a hundred times smaller than an image.
var documentLimits = Limits{
	Bytes: evidence.MaxDocument, Layers: 1, Packages: 20_000, MemoryBytes: 512 << 20, Seconds: 10,
}

// A Document describes an SBOM.
type Document struct {
	Format string // format of the SBOM: SPDX or CycloneDX
	Tool   string // the tool that wrote the SBOM, or ""
}

// SBOM calls Pool.SBOM with a pool that keeps no children.
func SBOM(ctx context.Context, document Layer, image string) (Result, error) {
	return new(Pool).SBOM(ctx, "", document, image)
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

// answerTo returns the answer for a document about an image, with at most limit packages.
func answerTo(body []byte, image string, limit int) answer {
	noSBOM := answer{Result: &Result{}}
	d, err := evidence.Open(body)
	if errors.Is(err, evidence.ErrUnknown) {
		return noSBOM
	}
	if err != nil {
		return answer{NotUnderstood: short(err.Error())}
	}
	if d.Subjects != nil && !slices.Contains(d.Subjects, image) {
		return noSBOM
	}
	content, err := d.SBOM()
	if errors.Is(err, evidence.ErrUnknown) {
		return noSBOM
	}
	if err != nil {
		return answer{NotUnderstood: short(err.Error())}
	}
	r := packagesOf(content, limit)
	r.Document = &Document{Format: string(d.Format), Tool: short(content.Tool)}
	return answer{Result: &r}
}

// packagesOf returns those packages of an SBOM that have a package URL, each once, and at most limit packages.
func packagesOf(content evidence.SBOM, limit int) Result {
	r := Result{}
	seen := map[[4]string]bool{}
	unnamed, unreadable := 0, 0
	for _, c := range content.Packages {
		p, ok := componentOf(c)
		switch key := [4]string{p.Ecosystem, p.Name, p.Version, p.Purl}; {
		case !ok && c.PURL != "":
			unreadable++
		case !ok:
			unnamed++
		case isImage(c.PURL), seen[key]:
		case len(r.Packages) == limit:
			r.Warnings = append(r.Warnings,
				fmt.Sprintf("it has more than %d packages; further packages are left out", limit))
			return r
		default:
			seen[key] = true
			r.Packages = append(r.Packages, p)
		}
	}
	if unnamed > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d parts have no package URL, and are left out", unnamed))
	}
	if unreadable > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d package URLs cannot be read, and are left out", unreadable))
	}
	return r
}

// isImage reports whether a package URL names an image. An SBOM may list its own image as a package.
func isImage(purl string) bool {
	return strings.HasPrefix(purl, "pkg:oci/") || strings.HasPrefix(purl, "pkg:docker/")
}

var pythonSeparators = regexp.MustCompile(`[-_.]+`)

// componentOf converts a package of an SBOM. The result has the same names as packages that are found in images.
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
	qualifiers, _ := url.ParseQuery(query) // on an error, it returns the valid part of the query
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
