package vuln

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// These are the largest numbers of subscriptions to reports.
const (
	MaxReportSubscriptions             = 10  // per person
	MaxReportSubscriptionsOrganization = 200 // in an organization and everything below it
)

// ReportEvery is the time between two reports of a subscription.
const ReportEvery = 7 * 24 * time.Hour

// A ReportSubscription says that a person gets the report of a group by e-mail every week.
type ReportSubscription struct {
	Group      resource.UID     `json:"group"`
	Identity   resource.UID     `json:"identity"`
	Voucher    resource.Voucher `json:"voucher,omitempty"` // provider that authenticated the person at the subscription
	CreateTime time.Time        `json:"createTime"`
	NextTime   time.Time        `json:"-"` // when the next report is due
	LastTime   time.Time        `json:"-"` // when the last report was queued; zero if none was
	Problem    string           `json:"-"` // why the last report was not sent; "" if it was
}
