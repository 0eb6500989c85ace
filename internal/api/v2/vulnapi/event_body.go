package vulnapi

import (
	"google.golang.org/protobuf/proto"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// EventKinds are the kinds of resources that have events, by the prefix of the
// event types.
var EventKinds = map[string]wire.EventKind{
	"platform.registry.inventory":  wire.NewEventKind(placeOf, nil),
	"vulnerabilities.advisory":     wire.NewEventKind(advisoryRecordOf, &advisoriespb.DeleteAdvisoryRequest{}),
	"vulnerabilities.advisories":   wire.NewEventKind(importedOf, nil),
	"vulnerabilities.feed":         wire.NewEventKind(feedOf, &advisoriespb.DeleteAdvisoryFeedRequest{}),
	"vulnerabilities.exploit_list": wire.NewEventKind(exploitListOf, nil),
	"findings.finding":             wire.NewEventKind(findingNewsOf, nil),
	"findings.exception":           wire.NewEventKind(exceptionRecordOf, &findingspb.DeleteExceptionRequest{}),
	"findings.rule":                wire.NewEventKind(ruleOf, &findingspb.DeleteRuleRequest{}),
	"findings.sla":                 wire.NewEventKind(ownSLAOf, &findingspb.DeleteSlaRequest{}),
	"findings.report_subscription": wire.NewEventKind(reportSubscriptionOf, nil),
}

// EventBodies return the bodies of events whose body is not the resource itself.
var EventBodies = map[resource.EventType]wire.EventBody{
	resource.AdvisoriesImported: func(e resource.Event) (proto.Message, error) {
		i, err := wire.DecodeEvent[imported](e.After)
		m := importedOf(i)
		m.GroupUid = string(e.Group)
		return m, err
	},
	resource.InventoryDeleted: func(e resource.Event) (proto.Message, error) {
		p, err := wire.DecodeEvent[vuln.InventoryPlace](e.Before)
		return &findingspb.DeleteInventoryRequest{GroupUid: string(p.Group), Place: p.Name}, err
	},
	resource.ReportUnsubscribed: func(e resource.Event) (proto.Message, error) {
		v, err := wire.DecodeEvent[vuln.ReportSubscription](e.Before)
		return &findingspb.DeleteReportSubscriptionRequest{GroupUid: string(v.Group)}, err
	},
	resource.ExploitListDeleted: func(e resource.Event) (proto.Message, error) {
		l, err := wire.DecodeEvent[vuln.ExploitList](e.Before)
		return &findingspb.DeleteExploitListRequest{GroupUid: string(l.Group), Format: string(l.Format)}, err
	},
}

func advisoryRecordOf(r vuln.AdvisoryRecord) *vulnpb.Advisory { return AdvisoryOf(r.Restore()) }

// imported is the outbox record about an import.
type imported struct {
	vuln.ImportResult
	Source string `json:"source"`
	Format string `json:"format"`
}

func importedOf(i imported) *advisoriespb.AdvisoriesImported {
	return &advisoriespb.AdvisoriesImported{Source: i.Source, Counts: countsOf(i.ImportResult), Format: i.Format}
}
