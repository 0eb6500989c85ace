package metadata

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	maxReports = 100 // reports that are read for one image
	maxCopies  = 20  // repos that are searched for the reports of a digest
	maxImages  = 50  // images whose SBOMs or reports one request reads
)

// An SBOM lists the packages of an image. It includes the document from which it was read.
type SBOM struct {
	evidence.SBOM
	images.Attached
	Image string // digest of the image, even if the request named an index
}

// SBOM returns the newest SBOM that is attached to an image. For an index, it uses the image for the given
// architecture, or for amd64 if architecture is "". The caller needs repo.list, sboms.list and manifest.metadata.list
// on the repo. It returns fault.NotFound if there is no SBOM, and fault.FailedPrecondition if it is too large.
func (s *Service) SBOM(ctx context.Context, repo resource.UID, digest, architecture string) (SBOM, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.SBOMsList,
		resource.ManifestMetadataList); err != nil {
		return SBOM{}, err
	}
	if err := s.images.Acquire(ctx, s.authz.Tenant(ctx)); err != nil {
		return SBOM{}, err
	}
	return s.sbom(ctx, repo, digest, architecture, images.NewBudget())
}

// RawSBOM is like SBOM, but returns only the document. The caller needs repo.list and sboms.list.
func (s *Service) RawSBOM(
	ctx context.Context, repo resource.UID, digest, architecture string,
) (images.Attached, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.SBOMsList); err != nil {
		return images.Attached{}, err
	}
	if err := s.images.Acquire(ctx, s.authz.Tenant(ctx)); err != nil {
		return images.Attached{}, err
	}
	found, err := s.sbom(ctx, repo, digest, architecture, images.NewBudget())
	return found.Attached, err
}

func (s *Service) sbom(
	ctx context.Context, repo resource.UID, digest, architecture string, b *images.Budget,
) (out SBOM, _ error) {
	search := images.Search{Repo: repo, What: "SBOM", Most: 1, Budget: b}
	err := s.images.Find(ctx, search, digest, architecture, func(image string, a images.Attached) bool {
		content, err := a.SBOM()
		out = SBOM{content, a, image}
		return err == nil
	})
	if err != nil {
		return SBOM{}, err
	}
	return out, nil
}

// Packages returns the SBOMs of images. Images without an SBOM are left out. The caller needs manifest.metadata.list
// on the repo.
func (s *Service) Packages(ctx context.Context, repo resource.UID, wanted []ImageOf) ([]SBOM, error) {
	if err := s.requireAll(ctx, repo, resource.ManifestMetadataList); err != nil {
		return nil, err
	}
	if len(wanted) > maxImages {
		return nil, fault.Field("items", "must be at most %d", maxImages)
	}
	if err := s.images.Acquire(ctx, s.authz.Tenant(ctx)); err != nil {
		return nil, err
	}
	var all []SBOM
	b := images.NewBudget()
	for _, i := range wanted {
		found, err := s.sbom(ctx, repo, i.Digest, i.Architecture, b)
		if errors.Is(err, fault.NotFound) {
			if _, gone := s.store.StatManifest(ctx, repo, i.Digest); gone != nil {
				return nil, gone
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// An ImageOf names an image by its digest, or the image for an architecture in an index.
type ImageOf struct{ Digest, Architecture string }

// Manifests returns up to n digests of the manifests in a repo, starting after last. The caller needs
// manifest.metadata.list on the repo.
func (s *Service) Manifests(ctx context.Context, repo resource.UID, last string, n int) ([]string, error) {
	if err := s.requireAll(ctx, repo, resource.ManifestMetadataList); err != nil {
		return nil, err
	}
	return s.store.ManifestDigests(ctx, repo, last, n)
}

// CountManifests returns the number of distinct manifests in a repo, or in all repos below a group. The caller needs
// manifest.metadata.list on it.
func (s *Service) CountManifests(ctx context.Context, scope resource.UID) (int64, error) {
	if err := s.authz.Require(ctx, resource.ManifestMetadataList, scope); err != nil {
		return 0, err
	}
	_, err := s.store.Repo(ctx, scope)
	if errors.Is(err, fault.NotFound) {
		_, err = s.iam.Group(ctx, scope)
	}
	if err != nil {
		return 0, err
	}
	return s.store.CountManifests(ctx, scope)
}

// A Report is a scanner's report about an image. It includes the document from which it was read.
type Report struct {
	evidence.Report
	images.Attached
	Image string // digest of the image in the request
}

// A Scan makes a report about an image to which no report is attached. ok is false if no report can be made, or if
// the caller may not see it.
type Scan func(ctx context.Context, repo resource.UID, digest string) (r evidence.Report, ok bool, _ error)

// When returns the time of the scan. If that is unknown, it returns the time at which the document was attached.
func (r Report) When() time.Time {
	return cmp.Or(r.Report.Time, r.Attached.Time)
}

// ImageReport returns the newest report that is attached to an image. The caller needs repo.list and
// vuln_reports.list on the repo. It returns the same errors as SBOM.
func (s *Service) ImageReport(ctx context.Context, repo resource.UID, digest string) (Report, error) {
	if err := s.requireAll(ctx, repo, resource.RepoList, resource.ImageReportsList); err != nil {
		return Report{}, err
	}
	if err := s.images.Acquire(ctx, s.authz.Tenant(ctx)); err != nil {
		return Report{}, err
	}
	found, err := s.reports(ctx, repo, digest)
	if err != nil {
		return Report{}, err
	}
	return found[0], nil
}

// reports returns the reports that are attached to an image, newest first, within the budget of one response.
// It returns fault.NotFound if there are none.
func (s *Service) reports(ctx context.Context, repo resource.UID, digest string) ([]Report, error) {
	var all []Report
	search := images.Search{Repo: repo, What: "report of a scanner", Most: maxReports, Budget: images.NewBudget()}
	err := s.images.Find(ctx, search, digest, "", func(_ string, a images.Attached) bool {
		r, err := a.Report()
		if err == nil {
			all = append(all, Report{r, a, digest})
		}
		return err == nil
	})
	slices.SortStableFunc(all, func(a, b Report) int { return b.When().Compare(a.When()) })
	return all, err
}

// maxVEX is the largest number of OpenVEX documents that are read for one image.
const maxVEX = 10

// Statements returns the OpenVEX documents that are attached to an image, newest first. They state what the
// identities that pushed them claim. It does not authorize the caller. It returns fault.NotFound if there are none.
func (s *Service) Statements(ctx context.Context, repo resource.UID, digest string) (all []images.Attached, _ error) {
	if err := s.images.Acquire(ctx, s.authz.Tenant(ctx)); err != nil {
		return nil, err
	}
	search := images.Search{Repo: repo, What: "OpenVEX document", Most: maxVEX, Budget: images.NewBudget()}
	return all, s.images.Find(ctx, search, digest, "", func(_ string, a images.Attached) bool {
		if a.Format == evidence.OpenVEX {
			all = append(all, a)
		}
		return a.Format == evidence.OpenVEX
	})
}

// Reports returns the reports that are attached to an image, newest first. The image is given by its digest, and may
// be in any repo on which the caller holds vuln_report.list. If digest is "", the image is given by a repo and a tag.
// If no report is attached, Reports returns the report that scan makes, unless scan is nil. It returns fault.NotFound
// if there is no such image.
func (s *Service) Reports(
	ctx context.Context, digest string, repo resource.UID, tag string, scan Scan,
) ([]Report, error) {
	under, err := s.authz.Reach(ctx, resource.ReportsList)
	if err != nil {
		return nil, err
	}
	repos := []resource.UID{repo}
	if digest == "" {
		digest, err = s.digestOf(ctx, repo, tag)
	} else if err = images.CheckDigest(digest); err == nil {
		repos, err = s.store.ReposWith(ctx, store.Reach{Under: under}, digest, maxCopies)
	}
	if err != nil {
		return nil, err
	}
	if err := s.images.Acquire(ctx, s.authz.Tenant(ctx)); err != nil {
		return nil, err
	}
	if len(repos) == 0 {
		return nil, fault.Missing("image", digest)
	}
	for _, repo := range repos { // one repo is enough, because reports are copied together with their image
		found, err := none(s.reports(ctx, repo, digest))
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	for _, repo := range repos {
		if scan == nil {
			break
		}
		if r, ok, err := scan(ctx, repo, digest); err != nil || ok {
			return []Report{{Report: r, Image: digest}}, err
		}
	}
	return nil, nil
}

// none returns an empty list instead of fault.NotFound.
func none(all []Report, err error) ([]Report, error) {
	if errors.Is(err, fault.NotFound) {
		return nil, nil
	}
	return all, err
}

// digestOf returns the digest that a tag of a repo points to.
func (s *Service) digestOf(ctx context.Context, repo resource.UID, tag string) (string, error) {
	if err := s.requireAll(ctx, repo, resource.ReportsList); err != nil {
		return "", err
	}
	if !registry.ValidTag(tag) {
		return "", fault.Field("tag", "is not a name that a tag can have")
	}
	m, err := s.store.StatManifest(ctx, repo, tag)
	return m.Digest, err
}

// A Tally lists the vulnerabilities in a report about an image to which a tag has pointed.
type Tally struct {
	Repo, Tag string
	Time      time.Time
	Size      int64
	Found     map[evidence.Severity][]string // sorted IDs, each only under its highest severity
}

// Tallies returns a tally for each report, made between two times, about the images to which a tag has pointed,
// oldest first. Either time may be zero. If cumulative is true, each tally includes the tallies before it. If no
// report is attached to an image, the report that scan makes is used, with the time at which the tag last pointed to
// the image. The repo is given by its path or by its name. A name selects all repos with that name on which the
// caller holds vuln_report.list.
func (s *Service) Tallies(
	ctx context.Context, repo, tag string, from, to time.Time, cumulative bool, scan Scan,
) ([]Tally, error) {
	under, err := s.authz.Reach(ctx, resource.ReportsList)
	if err != nil {
		return nil, err
	}
	if !registry.ValidTag(tag) {
		return nil, fault.Field("tag", "is not a name that a tag can have")
	}
	repos, err := s.reposNamed(ctx, under, repo)
	if err != nil {
		return nil, err
	}
	if err := s.images.Acquire(ctx, s.authz.Tenant(ctx)); err != nil {
		return nil, err
	}
	var all []Tally
	for _, r := range repos {
		findings, err := s.history(ctx, r.UID, tag, from, to, scan)
		if err != nil {
			return nil, err
		}
		found := map[string]evidence.Severity{}
		for _, f := range findings {
			if !cumulative {
				clear(found)
			}
			for id, severity := range f.found {
				addWorst(found, id, severity)
			}
			all = append(all, Tally{Repo: repo, Tag: tag, Time: f.when, Size: f.size, Found: bySeverity(found)})
		}
	}
	slices.SortStableFunc(all, func(a, b Tally) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// addWorst adds a vulnerability. If it was already added, addWorst keeps the higher severity.
func addWorst(found map[string]evidence.Severity, id string, severity evidence.Severity) {
	if was, ok := found[id]; !ok || slices.Index(severities, severity) > slices.Index(severities, was) {
		found[id] = severity
	}
}

// severities lists all severities, the lowest first.
var severities = []evidence.Severity{
	evidence.Unknown, evidence.Negligible, evidence.Low, evidence.Medium, evidence.High, evidence.Critical,
}

func bySeverity(found map[string]evidence.Severity) map[evidence.Severity][]string {
	out := map[evidence.Severity][]string{}
	for id, s := range found {
		out[s] = append(out[s], id)
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}

// reposNamed returns all repos with a name, or the one repo at a path.
func (s *Service) reposNamed(ctx context.Context, under []resource.UID, repo string) ([]registry.Repo, error) {
	f := resource.Filter{Name: repo}
	if repo == "" || f.Validate() != nil {
		return nil, fault.Field("repo", "must be the name of a repo, or its path")
	}
	if strings.Contains(repo, "/") {
		uid, err := s.store.UncachedRepo(ctx, strings.Split(repo, "/"))
		no := fault.Missing("repo", clip(repo))
		if err == nil {
			err = s.authz.Require(ctx, resource.ReportsList, uid)
		}
		return []registry.Repo{{UID: uid}}, hide(err, no)
	}
	reach := store.Reach{Under: under}
	got, err := page.Read(ctx, s.pages, registrydb.RepoList, reach, f, page.Params{Size: maxCopies}, s.store.Repos)
	return got.Items, err
}

// A finding is the part of a report from which a Tally is made.
type finding struct {
	when  time.Time
	size  int64 // size of the image in bytes
	found map[string]evidence.Severity
}

// history returns a finding for each report, made between two times, about the images to which a tag has pointed,
// oldest first. It reads each image once. The reports of only one image are in memory at a time.
func (s *Service) history(
	ctx context.Context, repo resource.UID, tag string, from, to time.Time, scan Scan,
) ([]finding, error) {
	newest := page.Request{Size: page.MaxSize, Order: page.Order{Field: "time", Desc: true}}
	moves, err := s.store.TagHistory(ctx, repo, tag, newest)
	if err != nil {
		return nil, err
	}
	var all []finding
	read := map[string]bool{"": true} // digests that were handled; the digest "" means that the tag was deleted
	until := s.store.Time()
	for _, m := range moves.Items {
		last := until
		until = m.Time
		if read[m.Digest] || len(read) > maxImages {
			continue
		}
		read[m.Digest] = true
		reports, err := none(s.reports(ctx, repo, m.Digest))
		if err != nil {
			return nil, err
		}
		if len(reports) == 0 && scan != nil {
			r, ok, err := scan(ctx, repo, m.Digest)
			if err != nil {
				return nil, err
			}
			if r.Time = last; ok {
				reports = []Report{{Report: r, Image: m.Digest}}
			}
		}
		for _, r := range reports {
			if r.When().Before(from) || !to.IsZero() && r.When().After(to) {
				continue
			}
			image, err := s.images.Image(ctx, repo, r.Image)
			if err != nil {
				return nil, err
			}
			v, _ := images.Choose(image, "") // on failure the size is 0
			f := finding{when: r.When(), size: v.Size, found: map[string]evidence.Severity{}}
			for _, match := range r.Matches {
				addWorst(f.found, match.ID, match.Severity)
			}
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b finding) int { return a.when.Compare(b.when) })
	return all, nil
}
