package policy

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// A VEX is a source of exceptions: the text of a document, or an image with attached
// documents.
type VEX struct {
	Text    []byte
	Image   finding.Image // image with attached documents; used if Text is empty
	Expires time.Time     // time at which the exceptions expire

	digest string // digest of the image
}

// An ImportedStatement is a statement of a document and the result of its import.
type ImportedStatement struct {
	format.Statement
	Number     int // position in the document, from 1
	Author     string
	Document   string // digest of the attached document; "" if it was uploaded
	Exceptions []CountedException
	Problems   []string
}

// maxImported is the maximum number of exceptions that one import creates.
const maxImported = vuln.MaxExceptions

// ImportVEX creates exceptions from the statements of a document. It creates all of them or none. The caller needs
// policies.override.create on the group. For documents that are attached to an image, the caller also needs repo.list
// and vuln_reports.list on the repo. As with CreateException, the exceptions are approved if the caller may approve
// exceptions. The capabilities of the identity that attached a document do not matter.
func (s *Service) ImportVEX(ctx context.Context, parent resource.UID, v VEX) (statements []ImportedStatement, _ error) {
	if err := s.authz.Require(ctx, resource.OverrideCreate, parent); err != nil {
		return nil, err
	}
	statements, err := s.readVEX(ctx, parent, &v)
	if err != nil {
		return nil, err
	}
	have, err := s.liveExceptions(ctx, parent)
	if err != nil {
		return nil, err
	}
	var fresh []vuln.Exception
	for i := range statements {
		if err := s.importStatement(ctx, parent, v, &statements[i], have); err != nil {
			return nil, err
		}
		for _, e := range statements[i].Exceptions {
			fresh = append(fresh, e.Exception)
		}
	}
	if len(fresh) > maxImported {
		return nil, fault.Field("document", "has statements for %d exceptions, and at most %d can be created", len(fresh),
			maxImported)
	}
	if len(fresh) == 0 {
		return statements, nil
	}
	return statements, s.packages.InsertExceptions(ctx, parent, fresh)
}

// readVEX reads the statements of the documents. If several statements are about the same vulnerability and product,
// only the latest counts.
func (s *Service) readVEX(ctx context.Context, parent resource.UID, v *VEX) (imported []ImportedStatement, _ error) {
	if len(v.Text) > 0 {
		author, statements, err := format.ReadStatements(v.Text)
		if err != nil {
			return nil, fault.Field("document", "%s", clipped(err.Error()))
		}
		return numbered(statements, author, ""), nil
	}
	if v.Image.Repo == "" {
		return nil, fault.Field("document", "is required, unless there is a repo_uid")
	}
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(resource.RepoList, resource.ImageReportsList),
		v.Image.Repo); err != nil {
		return nil, err
	}
	if !parent.Covers(v.Image.Repo) {
		return nil, fault.Field("repo_uid", "is not below the group")
	}
	variant, err := s.registry.Variant(ctx, v.Image.Repo, v.Image.Reference, v.Image.Architecture)
	if err != nil {
		return nil, err
	}
	v.digest = variant.Digest
	documents, err := s.registry.Statements(ctx, v.Image.Repo, v.digest)
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		author, statements, err := format.ReadStatements(d.Raw)
		if err != nil {
			statements = []format.Statement{{Err: err}}
		}
		imported = append(imported, numbered(statements, author, d.Digest)...)
	}
	return imported, nil
}

func numbered(statements []format.Statement, author, document string) (out []ImportedStatement) {
	for i, st := range statements {
		out = append(out, ImportedStatement{Statement: st, Number: i + 1, Author: author, Document: document})
	}
	latest := map[string]int{}
	for i, st := range out {
		for _, p := range st.Products {
			key := fmt.Sprintf("%q %q %q", st.Name, p.ID, p.Subcomponents)
			if before, ok := latest[key]; !ok || !out[before].Time.After(st.Time) {
				latest[key] = i
			}
		}
	}
	for i := range out {
		out[i].Products = slices.DeleteFunc(out[i].Products, func(p format.Product) bool {
			overruled := latest[fmt.Sprintf("%q %q %q", out[i].Name, p.ID, p.Subcomponents)] != i
			if overruled {
				out[i].Problems = append(out[i].Problems, clipped(p.ID)+": a later statement replaces this one")
			}
			return overruled
		})
	}
	return out
}

// importStatement creates the exceptions for a statement, or adds the reasons why it cannot create them. have contains
// the exceptions that the group already has.
func (s *Service) importStatement(
	ctx context.Context, parent resource.UID, v VEX, st *ImportedStatement, have map[string]bool,
) error {
	if st.Err != nil {
		st.Problems = append(st.Problems, clipped(st.Err.Error()))
		return nil
	}
	if st.Status != format.StatusNotAffected && st.Status != format.StatusFixed {
		st.Problems = append(st.Problems, "says "+st.Status+", which creates no exception")
		return nil
	}
	for _, p := range st.Products {
		targets, err := s.productTargets(ctx, parent, v, p)
		if err != nil && !errors.Is(err, errProduct) {
			return err
		}
		if err != nil {
			st.Problems = append(st.Problems, clipped(p.ID)+": "+err.Error())
			continue
		}
		for _, e := range targets {
			e.Advisory, e.ExpireTime, e.Reason = st.Name, v.Expires, reasonOf(*st)
			if slices.Contains(vuln.Justifications, st.Justification) {
				e.Justification = st.Justification
			}
			if err := s.propose(ctx, parent, p, e, st, have); err != nil {
				return err
			}
		}
	}
	return nil
}

// propose adds exceptions to the statement: one for each subcomponent of a product, or one for the product if it has no
// subcomponents.
func (s *Service) propose(
	ctx context.Context, parent resource.UID, p format.Product, e vuln.Exception, st *ImportedStatement,
	have map[string]bool,
) error {
	parts := p.Subcomponents
	if len(parts) == 0 {
		parts = []string{e.PURL}
	}
	for _, part := range parts {
		e.PURL = part
		fresh, err := s.newException(ctx, parent, e)
		switch f := fault.From(err); {
		case err == nil:
		case f.Code == fault.InvalidArgument && len(f.Fields) > 0:
			st.Problems = append(st.Problems, clipped(p.ID)+": "+f.Fields[0].Subject+" "+clipped(f.Fields[0].Description))
			continue
		default:
			return err
		}
		if have[exceptionKey(fresh)] {
			st.Problems = append(st.Problems, clipped(p.ID)+": such an exception already exists")
			continue
		}
		have[exceptionKey(fresh)] = true
		st.Exceptions = append(st.Exceptions, CountedException{Exception: fresh, Now: fresh.CreateTime})
	}
	return nil
}

// reasonOf returns the text that the exceptions of a statement have as their reason.
func reasonOf(st ImportedStatement) string {
	text := cmp.Or(st.Text, st.Justification, st.Status)
	by := clipped(cmp.Or(st.Author, "nobody"))
	return strings.ToValidUTF8(text[:min(len(text), 1500)], "") + " (" + st.Status + ", OpenVEX of " + by + ")"
}

// exceptionKey returns a text that is equal for exceptions with the same content.
func exceptionKey(e vuln.Exception) string {
	return fmt.Sprintf("%q %q %q %q %q", e.Target, e.TagPattern, e.Digest, e.Advisory, e.PURL)
}

// liveExceptions returns the keys of the group's exceptions that have not expired.
func (s *Service) liveExceptions(ctx context.Context, group resource.UID) (map[string]bool, error) {
	exceptions, err := s.packages.Exceptions(ctx, store.Reach{Under: []resource.UID{group}},
		resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: group}},
		page.Request{Size: vuln.MaxExceptions, Order: page.Order{Field: "uid"}})
	have := map[string]bool{}
	for _, e := range exceptions.Items {
		if e.ExpireTime.IsZero() || e.ExpireTime.After(s.packages.Time()) {
			have[exceptionKey(e)] = true
		}
	}
	return have, err
}

// Errors for products for which no exception can be created.
var (
	errProduct = errors.New("is neither a package, nor an image below the group")
	errOther   = fmt.Errorf("%w: it is not the image that the document is attached to", errProduct)
)

// productTargets returns exceptions that have the targets of a product. The product is an image in a repo below the
// group, if the caller may list the repo, or a package anywhere below the group. A document that is attached to an
// image can name only that image.
func (s *Service) productTargets(
	ctx context.Context, parent resource.UID, v VEX, p format.Product,
) (targets []vuln.Exception, _ error) {
	kind, path, digest, tag := parseProduct(p)
	if v.digest != "" {
		return attachedTargets(v, kind, digest, p)
	}
	if kind == "package" {
		return []vuln.Exception{{Target: parent, PURL: p.ID}}, nil
	}
	reach, err := finding.Reach(ctx, s.authz, parent, resource.RepoList)
	if err != nil {
		return nil, err
	}
	switch {
	case path != nil:
		repo, err := s.repoStore.UncachedRepo(ctx, path)
		if errors.Is(err, fault.NotFound) || err == nil && !store.Covered(reach, repo) {
			return nil, errProduct
		}
		return []vuln.Exception{{Target: repo, Digest: digest, TagPattern: tag}}, err
	case digest != "":
		repos, err := s.repoStore.ReposWith(ctx, store.Reach{Under: reach}, digest, maxListed)
		if err == nil && len(repos) == 0 {
			return nil, errProduct
		}
		for _, r := range repos {
			targets = append(targets, vuln.Exception{Target: r, Digest: digest})
		}
		return targets, err
	}
	return nil, errProduct
}

// attachedTargets returns the exceptions for a product in a document that is attached
// to an image.
func attachedTargets(v VEX, kind, digest string, p format.Product) ([]vuln.Exception, error) {
	e := vuln.Exception{Target: v.Image.Repo, Digest: v.digest}
	switch {
	case kind == "package":
		e.PURL = p.ID
	case digest != v.digest:
		return nil, errOther
	}
	return []vuln.Exception{e}, nil
}

// parseProduct returns the kind of a product: "image" or "package". For an image it also returns the path of the repo,
// the digest and the tag that the product contains.
func parseProduct(p format.Product) (kind string, path []string, digest, tag string) {
	if b, err := hex.DecodeString(p.SHA256); err == nil && len(b) == 32 {
		digest = "sha256:" + p.SHA256
	}
	if resource.ValidDigest(p.ID) {
		return "image", nil, p.ID, ""
	}
	rest, image := strings.CutPrefix(p.ID, "pkg:oci/")
	if !image {
		if _, name, _, err := version.ParsePURL(p.ID); err == nil && name != "" {
			return "package", nil, "", ""
		}
		return "image", nil, digest, ""
	}
	rest, query, _ := strings.Cut(rest, "?")
	_, number, _ := strings.Cut(rest, "@")
	if number, err := url.PathUnescape(number); err == nil && resource.ValidDigest(number) {
		digest = number
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "image", nil, digest, ""
	}
	if _, repoPath, ok := strings.Cut(values.Get("repository_url"), "/"); ok { // the part before the slash is the host
		path = strings.Split(strings.Trim(repoPath, "/"), "/")
	}
	if tag = values.Get("tag"); !registry.ValidTag(tag) || digest != "" {
		tag = ""
	}
	return "image", path, digest, tag
}

// clipped shortens a text from a document to at most 200 bytes.
func clipped(text string) string {
	const most = 200
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
