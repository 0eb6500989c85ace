package resource

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// A Metric is a quantity that a budget limits.
type Metric string

// These are the metrics. Each is a sum over a group and everything below it.
const (
	StoredBytes       Metric = "stored_bytes"        // bytes of blobs and manifests, each once for every repo that has it
	BudgetRepos       Metric = "repos"               //
	BudgetIdentities  Metric = "identities"          // identities of workloads; people do not belong to a group
	BudgetAdvisories  Metric = "advisories"          //
	Webhooks          Metric = "webhooks"            // subscriptions to events
	BudgetGroups      Metric = "groups"              // groups below the group
	BudgetBindings    Metric = "bindings"            // role bindings
	RequestsPerSecond Metric = "requests_per_second" // requests by identities in the group
	PullsPerDay       Metric = "pulls_per_day"       // manifests pulled from repos in the group, per day in UTC
)

// Metrics contains all metrics, in the order in which they are shown.
var Metrics = []Metric{
	StoredBytes, BudgetRepos, BudgetIdentities, BudgetAdvisories, Webhooks, BudgetGroups, BudgetBindings,
	RequestsPerSecond, PullsPerDay,
}

// Unit returns the plural noun for what the metric counts.
func (m Metric) Unit() string {
	switch m {
	case StoredBytes:
		return "stored bytes"
	case RequestsPerSecond:
		return "requests per second"
	case PullsPerDay:
		return "pulls per day"
	}
	return string(m)
}

// A Budget limits what a group and everything below it may use. A metric without a limit
// is unlimited. A write must keep the budgets of all groups above it.
type Budget struct {
	UID        UID              `json:"uid"` // UID of the group
	Limits     map[Metric]int64 `json:"limits,omitempty"`
	CreateTime time.Time        `json:"createTime"`
	UpdateTime time.Time        `json:"updateTime"`
}

// MaxLimit is the largest limit: the largest integer that every JSON parser represents
// exactly. Sums of a few limits do not overflow.
const MaxLimit = 1<<53 - 1

// Validate reports every field that a caller must fix.
func (b Budget) Validate() error {
	var p Problems
	for _, m := range slices.Sorted(maps.Keys(b.Limits)) {
		switch limit := b.Limits[m]; {
		case !slices.Contains(Metrics, m):
			p.Add(string(m), "is nothing that a budget limits")
		case limit < 0 || limit > MaxLimit:
			p.Add(string(m), "must be from 0 to "+strconv.FormatInt(MaxLimit, 10))
		case limit == 0 && m == RequestsPerSecond:
			p.Add(string(m), "must be at least 1")
		}
	}
	return p.Err()
}
