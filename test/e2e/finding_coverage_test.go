package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// coverageName is the type of the coverage in answers about findings.
const coverageName = "holdfast.findings.v1.AnswerCoverage"

// withoutCoverage are the methods whose answers have no coverage, although they are in the same packages as questions
// about findings, each with the reason.
var withoutCoverage = map[string]string{
	"AdmissionService_CheckImages": "a decision about a pull; it has a reason if something is not known",

	"ExceptionsService_ApproveException": "an exception, without the findings that it matches",
	"ExceptionsService_CreateException":  "an exception, without the findings that it matches",
	"ExceptionsService_GetException":     "an exception, without the findings that it matches",
	"VexService_ImportVex":               "exceptions, without the findings that they match",

	"ExploitedService_ListExploitLists": "lists of vulnerabilities, each with the time when it was read",
	"ExploitedService_QueryExploits":    "facts about vulnerabilities, from the lists",

	"FindingsService_GetInspection": "one image, with its state and the coverage of its packages",

	"InventoryService_ListInventory":       "what runs, without findings",
	"InventoryService_ListInventoryPlaces": "what runs, without findings",
	"InventoryService_PushInventory":       "what runs, without findings",

	"ReportsService_CreateReportSubscription": "a subscription; the report has the coverage",
	"ReportsService_ListReportSubscriptions":  "subscriptions; the report has the coverage",

	"RulesService_CreateRule": "a rule; CheckRule counts what it refuses",
	"RulesService_GetRule":    "a rule; CheckRule counts what it refuses",
	"RulesService_ListRules":  "rules; CheckRule counts what they refuse",
	"RulesService_UpdateRule": "a rule; CheckRule counts what it refuses",

	"SlasService_GetSla": "days, without findings",
	"SlasService_SetSla": "days, without findings",

	"Vulnerabilities_GetRawVulnReport":               "a document of a scanner, in the scanner's format",
	"Vulnerabilities_ListCumulativeVulnCountReports": "counts of scanners; our own report is left out if nothing is known",
	"Vulnerabilities_ListVulnCountReports":           "counts of scanners; our own report is left out if nothing is known",
	"Vulnerabilities_ListVulnReports":                "documents of scanners; our own is left out if nothing is known",
}

// coverageQuestions returns a request for each method whose answer has a coverage. id is an advisory that names a
// package of the image, or "". Then questions about an advisory are left out.
func (g *gallery) coverageQuestions(id, rule string) []proto.Message {
	questions := []proto.Message{
		&findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "v1"},
		&findingspb.ListPackagesRequest{RepoUid: g.repo, Reference: "v1"},
		&findingspb.ListGroupFindingsRequest{GroupUid: g.org},
		&findingspb.ListFindingTotalsRequest{GroupUid: g.org, By: findingspb.ListFindingTotalsRequest_BY_IMAGE},
		&findingspb.GetSummaryRequest{GroupUid: g.org},
		&findingspb.GetTrendRequest{GroupUid: g.org},
		&findingspb.GetReportRequest{GroupUid: g.org},
		&findingspb.CompareImagesRequest{FromRepoUid: g.repo, FromReference: "v1", ToReference: "v1"},
		&findingspb.ExportVexRequest{RepoUid: g.repo, Reference: "v1"},
		&findingspb.CheckRuleRequest{Uid: rule},
		&findingspb.ListExceptionsRequest{CountMatching: true},
		&findingspb.SearchPackagesRequest{Purl: "pkg:npm/none"},
	}
	if id == "" {
		return questions
	}
	return append(questions, &findingspb.ListAffectedImagesRequest{AdvisoryId: id},
		&findingspb.GetBlastRequest{AdvisoryId: id},
		&findingspb.ListBlastStageRequest{AdvisoryId: id, Stage: findingspb.BlastStage_NAME_OWNERS})
}

// TestEveryAnswerHasCoverage fails if the answer of a method about findings has no coverage, and withoutCoverage does
// not say why, or if TestAnswerCoverage does not call the method.
func TestEveryAnswerHasCoverage(t *testing.T) {
	asked := map[string]bool{}
	for _, in := range (&gallery{hierarchy: &hierarchy{}}).coverageQuestions("CVE-1", "") {
		asked[coverageMethod(methodOf(in))] = true
	}
	found := map[string]bool{}
	eachMethod(func(m protoreflect.MethodDescriptor) {
		name, in := coverageMethod(m), m.ParentFile().Package()
		if in != "holdfast.findings.v1" && m.Parent().FullName() != "holdfast.registry.v1.Vulnerabilities" ||
			m.Output().FullName() == "google.protobuf.Empty" {
			return
		}
		found[name] = true
		switch field := m.Output().Fields().ByName("coverage"); {
		case field != nil && field.Message().FullName() == coverageName:
			if !asked[name] {
				t.Errorf("no request of coverageQuestions calls %s", name)
			}
			if withoutCoverage[name] != "" {
				t.Errorf("%s has a coverage; remove it from withoutCoverage", name)
			}
		case withoutCoverage[name] == "":
			t.Errorf("the answer of %s has no coverage, and withoutCoverage does not say why", name)
		}
	})
	for name := range withoutCoverage {
		if !found[name] {
			t.Errorf("there is no method %s", name)
		}
	}
	for name := range asked {
		if !found[name] {
			t.Errorf("%s is not a method about findings", name)
		}
	}
}

func coverageMethod(m protoreflect.MethodDescriptor) string {
	return string(m.Parent().Name()) + "_" + string(m.Name())
}

// TestAnswerCoverage checks that every answer about findings says what was known: how many images are inspected, how
// many packages were compared, and which versions of the feeds were used.
func TestAnswerCoverage(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		rule := g.ruled(t, g.org, &findingspb.Rule{}).GetUid()
		check := func(id, counts string, extent findingspb.AnswerCoverage_Extent) {
			t.Helper()
			for _, in := range g.coverageQuestions(id, rule) {
				want := counts + " " + extent.String()
				switch in.(type) {
				case *findingspb.SearchPackagesRequest: // advisories do not matter
					want = counts + " " + findingspb.AnswerCoverage_EXTENT_EVERYTHING.String()
				case *findingspb.CompareImagesRequest: // both images count, although they are the same
					want = strings.Replace(want, "1 1", "2 2", 1)
				}
				for protocol, call := range g.protocols() {
					m, st := call(t, g.full["org"], in)
					if st != nil {
						t.Fatalf("%T over %s: %v", in, protocol, st)
					}
					c := m.(interface {
						GetCoverage() *findingspb.AnswerCoverage
					}).GetCoverage()
					p := c.GetPackages()
					got := fmt.Sprint(c.GetImages(), c.GetIndexed(), c.GetWaiting(), c.GetNotUnderstood(), " ", p.GetPackages(),
						p.GetCovered(), p.GetNotCovered(), " ", c.GetExtent())
					if got != want || c.GetPackageTime() == nil {
						t.Errorf("the coverage of %T over %s is %s, want %s", in, protocol, got, want)
					}
				}
			}
		}
		// No advisory exists, so nothing is known.
		check("", "1 1 0 0 2 0 2", findingspb.AnswerCoverage_EXTENT_NOTHING)
		g.publish(t, g.org, osvOf("DSA-1", "CVE-1", "Debian:12", "other", "3.0.2-1"))
		check("CVE-1", "1 1 0 0 2 1 1", findingspb.AnswerCoverage_EXTENT_PART)
		g.publish(t, g.org, osvOf("GHSA-1", "CVE-3", "npm", "other", "1.3.0"))
		check("CVE-1", "1 1 0 0 2 2 0", findingspb.AnswerCoverage_EXTENT_EVERYTHING)
	})
}
