package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/fault"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	tenantpb "github.com/holdfast-dev/holdfast/gen/tenant/v1"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/registry/evidence"
	"github.com/holdfast-dev/holdfast/resource"
)

// GetVulnReport is of registryv1pb.RegistryServer.
func (s registryV1) GetVulnReport(ctx context.Context, r *registryv1pb.VulnReportRequest) (*tenantpb.VulnReport, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	got, err := s.registry.ImageReport(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &tenantpb.VulnReport{
		Id: string(repo), Scanner: &tenantpb.Scanner{Name: got.Scanner, Version: got.Version}, RawVulnReport: got.Raw,
		VulnerabilityDbLastBuildTime: timeOf(got.DatabaseTime), ReportGeneration: timeOf(got.When()), LastSeen: timeOf(got.Attached.Time),
		VulnerabilityMatches: convert(got.Matches, matchV1),
	}, nil
}

// matchV1 writes a vulnerability in a package. What is negligible has no number
// here, and is low.
func matchV1(m evidence.Match) *tenantpb.VulnerabilityMatch {
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
		v.RelatedVulnerabilities = append(v.RelatedVulnerabilities, &tenantpb.VulnerabilityRecord_RelatedVulnerability{Id: alias})
	}
	return &tenantpb.VulnerabilityMatch{
		Vulnerability: v, Pkg: packageV1(m.Package), Fix: &tenantpb.Fix{Versions: m.Fix.Versions, State: tenantpb.Fix_State(m.Fix.State)},
	}
}

// numbered is the CVE number of a vulnerability, or else its id.
func numbered(m evidence.Match) string {
	for _, id := range append([]string{m.ID}, m.Aliases...) {
		if strings.HasPrefix(id, "CVE-") {
			return id
		}
	}
	return m.ID
}

type vulnerabilitiesV1 struct {
	registryv1pb.UnsafeVulnerabilitiesServer
	registry *registry.Service
}

// scannerV1 is the scanner of a report.
func scannerV1(r registry.Report) *registryv1pb.Scanner {
	return &registryv1pb.Scanner{Name: scannerNameV1(r.Scanner), Version: r.Version, DbBuildTime: timeOf(r.DatabaseTime)}
}

func scannerNameV1(name string) registryv1pb.Scanner_Name {
	return registryv1pb.Scanner_Name(registryv1pb.Scanner_Name_value[strings.ToUpper(name)])
}

// latestV1 is the tag that is meant where none is given.
const latestV1 = "latest"

// ListVulnReports is of registryv1pb.VulnerabilitiesServer.
func (s vulnerabilitiesV1) ListVulnReports(ctx context.Context, r *registryv1pb.VulnReportFilter) (*registryv1pb.VulnReportList, error) {
	since, err := readTime("created_since", r.GetCreatedSince())
	if err != nil {
		return nil, err
	}
	var repo resource.UID
	switch {
	case r.GetDigest() == "" && r.GetRepoId() == "":
		return nil, fault.Field("digest", "is required, or repo_id")
	case r.GetDigest() == "":
		if repo, err = resource.ParseUID("repo_id", r.GetRepoId()); err != nil {
			return nil, err
		}
	}
	all, err := s.registry.Reports(ctx, r.GetDigest(), repo, cmp.Or(r.GetTag(), latestV1))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(report registry.Report) bool {
		name, version := r.GetScanner().GetName(), r.GetScanner().GetVersion()
		return report.When().Before(since) || name != 0 && name != scannerNameV1(report.Scanner) || version != "" && version != report.Version
	})
	return &registryv1pb.VulnReportList{Items: convert(all, func(r registry.Report) *registryv1pb.VulnReport {
		return &registryv1pb.VulnReport{
			Digest: r.Image, Scanner: scannerV1(r), CreatedAt: timeOf(r.When()), Vulnerabilities: vulnerabilitiesOf(r.Matches),
		}
	})}, nil
}

// vulnerabilitiesOf writes each vulnerability once, with all the packages that
// have it.
func vulnerabilitiesOf(matches []evidence.Match) []*registryv1pb.Vulnerability {
	var all []*registryv1pb.Vulnerability
	known := map[string]*registryv1pb.Vulnerability{}
	for _, m := range matches {
		v := known[m.ID]
		if v == nil {
			v = &registryv1pb.Vulnerability{
				Id: m.ID, Aliases: m.Aliases, Description: m.Description, Details: m.Details, Severity: registryv1pb.Vulnerability_Severity(m.Severity),
				RelatedUrls: m.URLs, Fix: &registryv1pb.Vulnerability_Fix{Versions: m.Fix.Versions, State: registryv1pb.Vulnerability_Fix_State(m.Fix.State)},
			}
			for _, c := range m.Scores {
				v.Cvss = append(v.Cvss, &registryv1pb.Vulnerability_CVSS{Score: c.Score, Version: c.Version})
			}
			known[m.ID] = v
			all = append(all, v)
		}
		if purl := m.Package.PURL; purl != "" && !slices.Contains(v.Purls, purl) {
			v.Purls = append(v.Purls, purl)
		}
		for _, at := range m.Locations {
			if at != "" && !slices.Contains(v.Locations, at) {
				v.Locations = append(v.Locations, at)
			}
		}
	}
	return all
}

// GetRawVulnReport is of registryv1pb.VulnerabilitiesServer.
func (s vulnerabilitiesV1) GetRawVulnReport(ctx context.Context, r *registryv1pb.GetRawVulnReportRequest) (*registryv1pb.RawVulnReport, error) {
	at, err := readTime("created_at", r.GetCreatedAt())
	if err != nil {
		return nil, err
	}
	if r.GetDigest() == "" {
		return nil, fault.Field("digest", "is required")
	}
	all, err := s.registry.Reports(ctx, r.GetDigest(), "", "")
	if err != nil {
		return nil, err
	}
	for _, report := range all {
		if r.GetScanner() != 0 && r.GetScanner() != scannerNameV1(report.Scanner) || !at.IsZero() && !at.Equal(report.When().Truncate(1e6)) {
			continue
		}
		return &registryv1pb.RawVulnReport{
			Digest: report.Image, Scanner: scannerV1(report), CreatedAt: timeOf(report.When()), RawReport: textOf(report.Raw),
		}, nil
	}
	return nil, fault.Missing("report of that scanner on", r.GetDigest())
}

// ListVulnCountReports is of registryv1pb.VulnerabilitiesServer.
func (s vulnerabilitiesV1) ListVulnCountReports(ctx context.Context, r *registryv1pb.VulnCountReportFilter) (*registryv1pb.VulnCountReportList, error) {
	return s.tallies(ctx, r, false)
}

// ListCumulativeVulnCountReports is of registryv1pb.VulnerabilitiesServer.
func (s vulnerabilitiesV1) ListCumulativeVulnCountReports(ctx context.Context, r *registryv1pb.VulnCountReportFilter) (*registryv1pb.VulnCountReportList, error) {
	return s.tallies(ctx, r, true)
}

func (s vulnerabilitiesV1) tallies(ctx context.Context, r *registryv1pb.VulnCountReportFilter, cumulative bool) (*registryv1pb.VulnCountReportList, error) {
	from, err := readTime("from", r.GetFrom())
	if err != nil {
		return nil, err
	}
	to, err := readTime("to", r.GetTo())
	if err != nil {
		return nil, err
	}
	all, err := s.registry.Tallies(ctx, r.GetRepo(), cmp.Or(r.GetTag(), latestV1), from, to, cumulative)
	if err != nil {
		return nil, err
	}
	return &registryv1pb.VulnCountReportList{Items: convert(all, tallyV1)}, nil
}

// tallyV1 writes how much was found, of every severity.
func tallyV1(t registry.Tally) *registryv1pb.VulnCountReport {
	p := &registryv1pb.VulnCountReport{
		Repo: t.Repo, Tag: t.Tag, Date: timeOf(t.Time), SizeBytes: t.Size,
		LowCveIds: t.Found[evidence.Low], MedCveIds: t.Found[evidence.Medium], HighCveIds: t.Found[evidence.High],
		CritCveIds: t.Found[evidence.Critical], NegligibleCveIds: t.Found[evidence.Negligible], UnknownCveIds: t.Found[evidence.Unknown],
	}
	for s := evidence.Unknown; s <= evidence.Negligible; s++ {
		p.CveIds = append(p.CveIds, t.Found[s]...)
		p.VulnCounts = append(p.VulnCounts, &registryv1pb.VulnCount{Severity: registryv1pb.Vulnerability_Severity(s), Count: int32(len(t.Found[s]))})
	}
	slices.Sort(p.CveIds)
	return p
}
