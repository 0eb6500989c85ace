package query

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// ExportVEX returns the findings of an image as an OpenVEX document. The caller needs the same capabilities as for
// List. The document contains the reasons of those exceptions that the caller may list.
func (s *Service) ExportVEX(ctx context.Context, i finding.Image) ([]byte, error) {
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(resource.RepoList, resource.ImageReportsList),
		i.Repo); err != nil {
		return nil, err
	}
	k, found, err := s.look(ctx, i)
	if err != nil {
		return nil, err
	}
	if err := k.unavailable(); err != nil {
		return nil, err
	}
	listed, err := s.findings(ctx, found)
	if err != nil {
		return nil, err
	}
	asOf := s.packages.Time()
	if err := s.judge(ctx, i.Repo, k.Digest, listed, asOf); err != nil {
		return nil, err
	}
	paths, err := s.registry.Paths(ctx, []resource.UID{i.Repo})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(listed, func(a, b finding.Finding) int { return cmp.Compare(b.Key(), a.Key()) })
	reasons, err := s.reasons(ctx, listed)
	if err != nil {
		return nil, err
	}
	image := imagePURL(paths[i.Repo], k.Digest)
	var statements []format.Statement
	for _, v := range listed {
		statements = append(statements, statementOf(v, image, k.Digest, reasons))
	}
	return format.WriteStatements(format.Options{Time: asOf, ID: "urn:holdfast:openvex:" + k.Digest + ":" +
		asOf.Format("20060102T150405.000Z")}, statements)
}

// imagePURL returns the package URL of an image. The URL has no host, because the document is about the image in any
// registry.
func imagePURL(path, digest string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return "pkg:oci/" + url.PathEscape(name) + "@" + strings.ReplaceAll(digest, ":", "%3A")
}

// reasons returns those exceptions of findings that the caller may list, by UID.
func (s *Service) reasons(ctx context.Context, findings []finding.Finding) (map[resource.UID]vuln.Exception, error) {
	seen := map[resource.UID]vuln.Exception{}
	for _, v := range findings {
		if v.Exception != "" && s.authz.Require(ctx, resource.OverrideList, v.Exception) == nil {
			seen[v.Exception] = vuln.Exception{}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(seen)) {
		e, err := s.packages.Exception(ctx, uid)
		if err != nil && !errors.Is(err, fault.NotFound) { // NotFound means that the exception was just deleted
			return nil, err
		}
		seen[uid] = e
	}
	return seen, nil
}

// statementOf returns the statement about a finding in an image.
func statementOf(
	v finding.Finding, image, digest string, reasons map[resource.UID]vuln.Exception,
) format.Statement {
	st := format.Statement{Name: v.ID, Aliases: v.Aliases, Status: format.StatusAffected, Time: v.FirstSeen,
		Text: "No fix is known."}
	if fixed := cmp.Or(v.FixedVersion, strings.Join(v.Fixed, " or ")); fixed != "" {
		st.Text = "Update " + v.Package.Name + " to " + fixed + "."
	}
	if v.State == finding.StateExcepted {
		e := reasons[v.Exception]
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
