package vulnapi

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	pb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// AdvisoryOf converts an advisory to a message. The message has the state after the
// latest event.
func AdvisoryOf(a vuln.Advisory) *pb.Advisory {
	a = a.Current()
	p := &pb.Advisory{
		Uid: string(a.UID), AdvisoryId: a.ID, Author: a.Author,
		CreateTime: wire.Time(a.CreateTime), UpdateTime: wire.Time(a.UpdateTime), DeleteTime: wire.Time(a.DeleteTime),
		ArtifactName: a.ArtifactName, ArtifactType: a.ArtifactType, ArtifactArchitecture: a.ArtifactArchitecture,
		ComponentName: a.ComponentName, ComponentLocation: a.ComponentLocation, ComponentType: a.ComponentType,
		Aliases: a.Aliases, Events: wire.Convert(a.Events, AdvisoryEventOf), Severities: wire.Convert(a.Severities,
			severityOf),
		Summary: a.Summary, Details: a.Details, Affected: wire.Convert(a.Affected, affectedOf),
		References: wire.Convert(a.References, referenceOf), Fixes: a.Fixes,
		VendorSeverity: a.VendorSeverity,
	}
	if a.LegacyID != "" {
		p.LegacyAdvisoryId = proto.String(a.LegacyID)
	}
	if s := a.Source; s.Format != "" {
		p.Source = &pb.AdvisorySource{
			Format: s.Format, Name: s.Name, PublishTime: wire.Time(s.Published), ModifyTime: wire.Time(s.Modified),
		}
	}
	return p
}

func severityOf(s vuln.Severity) *pb.Severity {
	return &pb.Severity{Type: pb.Severity_Type(s.Type), Score: s.Score}
}

func referenceOf(r vuln.Reference) *pb.Reference {
	return &pb.Reference{Type: r.Type, Url: r.URL}
}

func affectedOf(a vuln.Affected) *pb.Affected {
	return &pb.Affected{
		Ecosystem: a.Ecosystem, Name: a.Name, Purl: a.PURL, Versions: a.Versions,
		Ranges: wire.Convert(a.Ranges, rangeOf), Severities: wire.Convert(a.Severities, severityOf),
		VendorSeverity: a.VendorSeverity,
	}
}

func rangeOf(r vuln.AffectedRange) *pb.AffectedRange {
	return &pb.AffectedRange{Type: r.Type, Repo: r.Repo, Events: wire.Convert(r.Events, rangeEventOf)}
}

func rangeEventOf(e vuln.RangeEvent) *pb.RangeEvent {
	switch {
	case e.Introduced != "":
		return &pb.RangeEvent{At: &pb.RangeEvent_Introduced{Introduced: e.Introduced}}
	case e.Fixed != "":
		return &pb.RangeEvent{At: &pb.RangeEvent_Fixed{Fixed: e.Fixed}}
	case e.LastAffected != "":
		return &pb.RangeEvent{At: &pb.RangeEvent_LastAffected{LastAffected: e.LastAffected}}
	case e.Limit != "":
		return &pb.RangeEvent{At: &pb.RangeEvent_Limit{Limit: e.Limit}}
	}
	return &pb.RangeEvent{}
}

// readAdvisory copies the fields that clients may set from p to a, except its events.
func readAdvisory(p *pb.Advisory, a *vuln.Advisory) error {
	a.Author = p.GetAuthor()
	a.ArtifactName, a.ArtifactType = p.GetArtifactName(), p.GetArtifactType()
	a.ArtifactArchitecture = p.GetArtifactArchitecture()
	a.ComponentName, a.ComponentType = p.GetComponentName(), p.GetComponentType()
	a.ComponentLocation = p.GetComponentLocation()
	a.Fixes, a.VendorSeverity = p.GetFixes(), p.GetVendorSeverity()
	a.Aliases, a.Severities = p.GetAliases(), wire.Convert(p.GetSeverities(), readSeverity)
	a.Summary, a.Details = p.GetSummary(), p.GetDetails()
	a.Affected = wire.Convert(p.GetAffected(), readAffected)
	a.References = wire.Convert(p.GetReferences(), func(r *pb.Reference) vuln.Reference {
		return vuln.Reference{Type: r.GetType(), URL: r.GetUrl()}
	})
	return nil
}

func readSeverity(s *pb.Severity) vuln.Severity {
	return vuln.Severity{Type: vuln.SeverityType(s.GetType()), Score: s.GetScore()}
}

func readAffected(a *pb.Affected) vuln.Affected {
	return vuln.Affected{
		Ecosystem: a.GetEcosystem(), Name: a.GetName(), PURL: a.GetPurl(), Versions: a.GetVersions(),
		Severities: wire.Convert(a.GetSeverities(), readSeverity), VendorSeverity: a.GetVendorSeverity(),
		Ranges: wire.Convert(a.GetRanges(), func(r *pb.AffectedRange) vuln.AffectedRange {
			return vuln.AffectedRange{Type: r.GetType(), Repo: r.GetRepo(),
				Events: wire.Convert(r.GetEvents(), func(e *pb.RangeEvent) vuln.RangeEvent {
					return vuln.RangeEvent{
						Introduced: e.GetIntroduced(), Fixed: e.GetFixed(), LastAffected: e.GetLastAffected(), Limit: e.GetLimit(),
					}
				})}
		}),
	}
}

// AdvisoryEventOf converts an event of an advisory to a message.
func AdvisoryEventOf(e vuln.AdvisoryEvent) *pb.AdvisoryEvent {
	p := &pb.AdvisoryEvent{
		Uid: string(e.UID), CreateTime: wire.Time(e.CreateTime), Findings: e.Findings, Author: e.Author, Reviewer: e.Reviewer,
		ReviewState: pb.ReviewState(e.ReviewState), Issue: e.Issue,
	}
	switch e.Type {
	case vuln.EventDetection:
		p.Type = &pb.AdvisoryEvent_Detection_{Detection: detectionOf(e.Detection)}
	case vuln.EventTruePositive:
		p.Type = &pb.AdvisoryEvent_TruePositiveDetermination_{
			TruePositiveDetermination: &pb.AdvisoryEvent_TruePositiveDetermination{Note: e.Note},
		}
	case vuln.EventFixed:
		f := vuln.Fix{}
		if e.Fixed != nil {
			f = *e.Fixed
		}
		p.Type = &pb.AdvisoryEvent_Fixed_{Fixed: &pb.AdvisoryEvent_Fixed{
			FixedVersion: f.Version, Note: e.Note, ScannerVersion: f.ScannerVersion, GrypeDbBuilt: f.DBBuilt,
			GrypeDbChecksum: f.DBChecksum,
		}}
	case vuln.EventFalsePositive:
		determination := &pb.AdvisoryEvent_FalsePositiveDetermination{
			Type: pb.AdvisoryEvent_FalsePositiveDetermination_Type(e.FalsePositive), Note: e.Note,
		}
		p.Type = &pb.AdvisoryEvent_FalsePositiveDetermination_{FalsePositiveDetermination: determination}
	case vuln.EventAnalysisNotPlanned:
		p.Type = &pb.AdvisoryEvent_AnalysisNotPlanned_{
			AnalysisNotPlanned: &pb.AdvisoryEvent_AnalysisNotPlanned{Note: e.Note},
		}
	case vuln.EventFixNotPlanned:
		p.Type = &pb.AdvisoryEvent_FixNotPlanned_{FixNotPlanned: &pb.AdvisoryEvent_FixNotPlanned{Note: e.Note}}
	case vuln.EventPendingUpstreamFix:
		p.Type = &pb.AdvisoryEvent_PendingUpstreamFix_{
			PendingUpstreamFix: &pb.AdvisoryEvent_PendingUpstreamFix{Note: e.Note},
		}
	case vuln.EventPatched:
		p.Type = &pb.AdvisoryEvent_Patched_{
			Patched: &pb.AdvisoryEvent_Patched{PatchedVersions: e.Patched, Note: e.Note},
		}
	}
	return p
}

func detectionOf(d *vuln.Detection) *pb.AdvisoryEvent_Detection {
	p := &pb.AdvisoryEvent_Detection{}
	switch {
	case d == nil:
	case d.NVD != nil:
		p.Type = &pb.AdvisoryEvent_Detection_Nvdapi{
			Nvdapi: &pb.AdvisoryEvent_Detection_NVDAPI{CpeSearched: d.NVD.CPESearched, CpeFound: d.NVD.CPEFound},
		}
	case d.Manual:
		p.Type = &pb.AdvisoryEvent_Detection_Manual_{Manual: &pb.AdvisoryEvent_Detection_Manual{}}
	case d.Scan != nil:
		s := d.Scan
		p.Type = &pb.AdvisoryEvent_Detection_Scanv1{Scanv1: &pb.AdvisoryEvent_Detection_ScanV1{
			Scanner: s.Scanner, Subpackage: s.Subpackage, ComponentId: s.ComponentID, Component: s.Component,
			ComponentVersion: s.ComponentVersion, ComponentType: s.ComponentType, ComponentLocation: s.ComponentLocation,
			ArtifactVersion: s.ArtifactVersion, ScannerVersion: s.ScannerVersion, GrypeDbBuilt: s.DBBuilt,
			GrypeDbChecksum: s.DBChecksum,
		}}
	}
	return p
}

// ReadAdvisoryEvent copies the fields that clients may set from p to e.
func ReadAdvisoryEvent(p *pb.AdvisoryEvent, e *vuln.AdvisoryEvent) error {
	*e = vuln.AdvisoryEvent{
		UID: e.UID, CreateTime: e.CreateTime, Findings: json.RawMessage(p.GetFindings()), Author: p.GetAuthor(),
		Reviewer: p.GetReviewer(), ReviewState: vuln.ReviewState(p.GetReviewState()), Issue: p.Issue,
	}
	switch t := p.GetType().(type) {
	case *pb.AdvisoryEvent_Detection_:
		e.Type, e.Detection = vuln.EventDetection, readDetection(t.Detection)
	case *pb.AdvisoryEvent_TruePositiveDetermination_:
		e.Type, e.Note = vuln.EventTruePositive, t.TruePositiveDetermination.GetNote()
	case *pb.AdvisoryEvent_Fixed_:
		f := t.Fixed
		e.Type, e.Note = vuln.EventFixed, f.GetNote()
		e.Fixed = &vuln.Fix{Version: f.GetFixedVersion(), ScannerDB: vuln.ScannerDB{
			ScannerVersion: f.GetScannerVersion(), DBBuilt: f.GetGrypeDbBuilt(), DBChecksum: f.GetGrypeDbChecksum(),
		}}
	case *pb.AdvisoryEvent_FalsePositiveDetermination_:
		e.Type, e.Note = vuln.EventFalsePositive, t.FalsePositiveDetermination.GetNote()
		e.FalsePositive = vuln.FalsePositiveType(t.FalsePositiveDetermination.GetType())
	case *pb.AdvisoryEvent_AnalysisNotPlanned_:
		e.Type, e.Note = vuln.EventAnalysisNotPlanned, t.AnalysisNotPlanned.GetNote()
	case *pb.AdvisoryEvent_FixNotPlanned_:
		e.Type, e.Note = vuln.EventFixNotPlanned, t.FixNotPlanned.GetNote()
	case *pb.AdvisoryEvent_PendingUpstreamFix_:
		e.Type, e.Note = vuln.EventPendingUpstreamFix, t.PendingUpstreamFix.GetNote()
	case *pb.AdvisoryEvent_Patched_:
		e.Type, e.Note, e.Patched = vuln.EventPatched, t.Patched.GetNote(), t.Patched.GetPatchedVersions()
	}
	return nil
}

func readDetection(p *pb.AdvisoryEvent_Detection) *vuln.Detection {
	d := &vuln.Detection{}
	switch t := p.GetType().(type) {
	case *pb.AdvisoryEvent_Detection_Nvdapi:
		d.NVD = &vuln.NVDDetection{CPESearched: t.Nvdapi.GetCpeSearched(), CPEFound: t.Nvdapi.GetCpeFound()}
	case *pb.AdvisoryEvent_Detection_Manual_:
		d.Manual = true
	case *pb.AdvisoryEvent_Detection_Scanv1:
		s := t.Scanv1
		d.Scan = &vuln.ScanDetection{
			Scanner: s.GetScanner(), Subpackage: s.GetSubpackage(), ComponentID: s.GetComponentId(), Component: s.GetComponent(),
			ComponentVersion: s.GetComponentVersion(), ComponentType: s.GetComponentType(),
			ComponentLocation: s.GetComponentLocation(),
			ArtifactVersion:   s.GetArtifactVersion(), ScannerDB: vuln.ScannerDB{
				ScannerVersion: s.GetScannerVersion(), DBBuilt: s.GetGrypeDbBuilt(), DBChecksum: s.GetGrypeDbChecksum(),
			},
		}
	}
	return d
}

// AdvisoryFilter returns the filter that a request for a list describes.
func AdvisoryFilter(r *pb.ListAdvisoriesRequest) vuln.AdvisoryFilter {
	f := vuln.AdvisoryFilter{
		UIDs: wire.UIDFilter(r.GetUidp()), IDs: r.GetAdvisoryIds(), LegacyIDs: r.GetLegacyAdvisoryIds(),
		ArtifactNames: r.GetArtifactNames(), ArtifactTypes: r.GetArtifactTypes(),
		ArtifactArchitectures: r.GetArtifactArchitectures(), ComponentNames: r.GetComponentNames(),
		ComponentTypes: r.GetComponentTypes(), ComponentLocations: r.GetComponentLocations(), Aliases: r.GetAliases(),
		ReviewStates: wire.Convert(r.GetEventReviewStates(),
			func(s pb.ReviewState) vuln.ReviewState { return vuln.ReviewState(s) }),
		EventAuthors: r.GetEventAuthors(), NotEventAuthors: r.GetExcludeEventAuthors(),
		EventReviewers: r.GetEventReviewers(),
		EventTypes: wire.Convert(r.GetEventTypes(),
			func(t pb.EventTypeFilter) vuln.AdvisoryEventType { return vuln.AdvisoryEventType(t) }),
		LatestEventType: vuln.AdvisoryEventType(r.GetLatestEventType()), Query: r.GetQuery(),
	}
	if r.GetOrigin() != "" {
		f.ArtifactNames = []string{r.GetOrigin()}
	}
	return f
}

func (s *server) GetAdvisory(ctx context.Context, r *pb.GetAdvisoryRequest) (*pb.Advisory, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Advisory.Get, AdvisoryOf)
}

func (s *server) ListAdvisories(ctx context.Context, r *pb.ListAdvisoriesRequest) (*pb.ListAdvisoriesResponse, error) {
	p, err := wire.List(ctx, r, AdvisoryFilter(r), s.Advisory.List, AdvisoryOf)
	return &pb.ListAdvisoriesResponse{
		Advisories: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
