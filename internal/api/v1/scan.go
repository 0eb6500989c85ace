package v1

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	tenantpb "github.com/holdfast-dev/holdfast/gen/tenant/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

func (s registries) GetVulnReport(ctx context.Context, r *registrypb.VulnReportRequest) (*tenantpb.VulnReport, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	got, err := s.registry.ImageReport(ctx, repo, r.GetDigest())
	if errors.Is(err, fault.NotFound) { // the image has no attached report
		found, ok, scanErr := s.findings.Report(ctx, repo, r.GetDigest(), resource.ImageReportsList)
		if scanErr != nil {
			return nil, scanErr
		}
		if ok {
			got, err = metadata.Report{Report: found, Attached: images.Attached{Time: found.Time}}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &tenantpb.VulnReport{
		Id: string(repo), Scanner: &tenantpb.Scanner{Name: got.Scanner, Version: got.Version}, RawVulnReport: got.Raw,
		VulnerabilityDbLastBuildTime: wire.Time(got.DatabaseTime), ReportGeneration: wire.Time(got.When()),
		LastSeen: wire.Time(got.Attached.Time), VulnerabilityMatches: wire.Convert(got.Matches, matchOf),
	}, nil
}

// matchOf converts a vulnerability in a package to a message. A negligible vulnerability
// gets the severity low, because version 1 has no value for negligible.
func matchOf(m evidence.Match) *tenantpb.VulnerabilityMatch {
	severity := tenantpb.VulnerabilityRecord_Severity(m.Severity)
	if m.Severity == evidence.Negligible {
		severity = tenantpb.VulnerabilityRecord_LOW
	}
	v := &tenantpb.VulnerabilityRecord{
		Id: m.ID, DisplayId: numbered(m), Description: cmp.Or(m.Description, m.Details), Severity: severity, Source: m.Source,
		CpeUri: m.CPEs, RelatedUrls: m.URLs,
	}
	for _, c := range m.Scores {
		v.Cvss = append(v.Cvss, &tenantpb.VulnerabilityRecord_Cvss{Score: c.Score, Version: c.Version})
	}
	for _, alias := range m.Aliases {
		v.RelatedVulnerabilities = append(v.RelatedVulnerabilities,
			&tenantpb.VulnerabilityRecord_RelatedVulnerability{Id: alias})
	}
	return &tenantpb.VulnerabilityMatch{
		Vulnerability: v, Pkg: packageOf(m.Package),
		Fix: &tenantpb.Fix{Versions: m.Fix.Versions, State: tenantpb.Fix_State(m.Fix.State)},
	}
}

// numbered returns the CVE number of a vulnerability, or its ID if it has none.
func numbered(m evidence.Match) string {
	for _, id := range append([]string{m.ID}, m.Aliases...) {
		if strings.HasPrefix(id, "CVE-") {
			return id
		}
	}
	return m.ID
}

type vulnerabilities struct {
	registrypb.UnsafeVulnerabilitiesServer
	registry *metadata.Service
	findings *query.Service
}

// scan returns a report from the findings of an image that has no attached report.
func (s vulnerabilities) scan(ctx context.Context, repo resource.UID, digest string) (evidence.Report, bool, error) {
	return s.findings.Report(ctx, repo, digest, resource.ReportsList)
}

// scannerOf converts the scanner that made a report to a message.
func scannerOf(r metadata.Report) *registrypb.Scanner {
	return &registrypb.Scanner{Name: scannerName(r.Scanner), Version: r.Version, DbBuildTime: wire.Time(r.DatabaseTime)}
}

func scannerName(name string) registrypb.Scanner_Name {
	return registrypb.Scanner_Name(registrypb.Scanner_Name_value[strings.ToUpper(name)])
}

// latest is the tag for requests without a tag.
const latest = "latest"

func (s vulnerabilities) ListVulnReports(
	ctx context.Context, r *registrypb.VulnReportFilter,
) (*registrypb.VulnReportList, error) {
	since, err := wire.ReadTime("created_since", r.GetCreatedSince())
	if err != nil {
		return nil, err
	}
	var repo resource.UID
	switch {
	case r.GetDigest() == "" && r.GetRepoId() == "":
		return nil, fault.Field("digest", "is required without repo_id")
	case r.GetDigest() == "":
		if repo, err = resource.ParseUID("repo_id", r.GetRepoId()); err != nil {
			return nil, err
		}
	}
	reports, err := s.registry.Reports(ctx, r.GetDigest(), repo, cmp.Or(r.GetTag(), latest), s.scan)
	if err != nil {
		return nil, err
	}
	reports = slices.DeleteFunc(reports, func(report metadata.Report) bool {
		name, version := r.GetScanner().GetName(), r.GetScanner().GetVersion()
		return report.When().Before(since) || name != 0 && name != scannerName(report.Scanner) || version != "" &&
			version != report.Version
	})
	return &registrypb.VulnReportList{Items: wire.Convert(reports, func(r metadata.Report) *registrypb.VulnReport {
		return &registrypb.VulnReport{
			Digest: r.Image, Scanner: scannerOf(r), CreatedAt: wire.Time(r.When()),
			Vulnerabilities: vulnerabilitiesOf(r.Matches),
		}
	})}, nil
}

// vulnerabilitiesOf returns one message for each vulnerability, with all packages that it
// affects.
func vulnerabilitiesOf(matches []evidence.Match) []*registrypb.Vulnerability {
	var all []*registrypb.Vulnerability
	known := map[string]*registrypb.Vulnerability{}
	for _, m := range matches {
		v := known[m.ID]
		if v == nil {
			v = &registrypb.Vulnerability{
				Id: m.ID, Aliases: m.Aliases, Description: m.Description, Details: m.Details,
				Severity: registrypb.Vulnerability_Severity(m.Severity), RelatedUrls: m.URLs,
				Fix: &registrypb.Vulnerability_Fix{Versions: m.Fix.Versions,
					State: registrypb.Vulnerability_Fix_State(m.Fix.State)},
			}
			for _, c := range m.Scores {
				v.Cvss = append(v.Cvss, &registrypb.Vulnerability_CVSS{Score: c.Score, Version: c.Version})
			}
			known[m.ID] = v
			all = append(all, v)
		}
		if purl := m.Package.PURL; purl != "" && !slices.Contains(v.Purls, purl) {
			v.Purls = append(v.Purls, purl)
		}
		for _, location := range m.Locations {
			if location != "" && !slices.Contains(v.Locations, location) {
				v.Locations = append(v.Locations, location)
			}
		}
	}
	return all
}

func (s vulnerabilities) GetRawVulnReport(
	ctx context.Context, r *registrypb.GetRawVulnReportRequest,
) (*registrypb.RawVulnReport, error) {
	created, err := wire.ReadTime("created_at", r.GetCreatedAt())
	if err != nil {
		return nil, err
	}
	if r.GetDigest() == "" {
		return nil, fault.Field("digest", "is required")
	}
	// These are only attached reports, because our own findings have no document.
	reports, err := s.registry.Reports(ctx, r.GetDigest(), "", "", nil)
	if err != nil {
		return nil, err
	}
	for _, report := range reports {
		if r.GetScanner() != 0 && r.GetScanner() != scannerName(report.Scanner) || !created.IsZero() &&
			!created.Equal(report.When().Truncate(1e6)) {
			continue
		}
		return &registrypb.RawVulnReport{
			Digest: report.Image, Scanner: scannerOf(report), CreatedAt: wire.Time(report.When()), RawReport: textOf(report.Raw),
		}, nil
	}
	return nil, fault.Missing("report of that scanner on", r.GetDigest())
}

func (s vulnerabilities) ListVulnCountReports(
	ctx context.Context, r *registrypb.VulnCountReportFilter,
) (*registrypb.VulnCountReportList, error) {
	return s.tallies(ctx, r, false)
}

func (s vulnerabilities) ListCumulativeVulnCountReports(
	ctx context.Context, r *registrypb.VulnCountReportFilter,
) (*registrypb.VulnCountReportList, error) {
	return s.tallies(ctx, r, true)
}

func (s vulnerabilities) tallies(
	ctx context.Context, r *registrypb.VulnCountReportFilter, cumulative bool,
) (*registrypb.VulnCountReportList, error) {
	from, err := wire.ReadTime("from", r.GetFrom())
	if err != nil {
		return nil, err
	}
	to, err := wire.ReadTime("to", r.GetTo())
	if err != nil {
		return nil, err
	}
	tallies, err := s.registry.Tallies(ctx, r.GetRepo(), cmp.Or(r.GetTag(), latest), from, to, cumulative, s.scan)
	if err != nil {
		return nil, err
	}
	return &registrypb.VulnCountReportList{Items: wire.Convert(tallies, tallyOf)}, nil
}

// tallyOf returns the message with the number of vulnerabilities by severity.
func tallyOf(t metadata.Tally) *registrypb.VulnCountReport {
	p := &registrypb.VulnCountReport{
		Repo: t.Repo, Tag: t.Tag, Date: wire.Time(t.Time), SizeBytes: t.Size, LowCveIds: t.Found[evidence.Low],
		MedCveIds: t.Found[evidence.Medium], HighCveIds: t.Found[evidence.High], CritCveIds: t.Found[evidence.Critical],
		NegligibleCveIds: t.Found[evidence.Negligible], UnknownCveIds: t.Found[evidence.Unknown],
	}
	for s := evidence.Unknown; s <= evidence.Negligible; s++ {
		p.CveIds = append(p.CveIds, t.Found[s]...)
		p.VulnCounts = append(p.VulnCounts, &registrypb.VulnCount{Severity: registrypb.Vulnerability_Severity(s),
			Count: int32(len(t.Found[s]))})
	}
	slices.Sort(p.CveIds)
	return p
}
