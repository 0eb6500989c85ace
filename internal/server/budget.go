package server

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/access/budget"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// openBudgets builds the service for budgets and its metrics. The metrics have fixed
// labels, so that tenants cannot add labels.
func (s *Server) openBudgets(tokens *page.Tokens) {
	s.budgets = budget.New(s.store, s.checker, tokens, budget.Config{Log: s.log, Now: s.cfg.Now})
	for _, m := range resource.Metrics {
		labels := prometheus.Labels{"budget": string(m)}
		s.metrics.MustRegister(
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "holdfast_budget_refusals_total", ConstLabels: labels,
				Help: "Requests that were refused because a budget was used up, by metric of the budget.",
			}, func() float64 { return float64(s.budgets.Refused(m)) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "holdfast_budget_groups_nearly_used", ConstLabels: labels,
				Help: "Groups that have used nine tenths of a budget or more, by metric of the budget.",
			}, func() float64 { return float64(s.budgets.NearlyUsed(m)) }),
		)
	}
}

// setBudget changes the budget of an organization, given by name or UID, or of a
// folder, given by UID, and writes it. Limits have the form METRIC=LIMIT.
func setBudget(ctx context.Context, s *Server, args []string, out io.Writer) error {
	limits := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, "=") })
	if limits < 0 {
		return fault.Field("limits", "give one or more limits, such as %s=50000000000 or repos=unlimited",
			resource.StoredBytes)
	}
	group, err := s.findGroup(ctx, strings.Join(args[:limits], " "))
	if err != nil {
		return err
	}
	r, err := s.budgets.Set(ctx, group, func(b *resource.Budget) error { return readLimits(args[limits:], b) })
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "set a budget", "group", group, "limits", strings.Join(args[limits:], " "))
	return writeBudget(out, r)
}

// readLimits applies the arguments to the limits of a budget.
func readLimits(args []string, b *resource.Budget) error {
	if b.Limits == nil {
		b.Limits = map[resource.Metric]int64{}
	}
	for _, arg := range args {
		name, text, _ := strings.Cut(arg, "=")
		m := resource.Metric(strings.ReplaceAll(name, "-", "_"))
		if !slices.Contains(resource.Metrics, m) {
			return fault.Field(name, "must be one of %v", resource.Metrics)
		}
		if text == "unlimited" {
			delete(b.Limits, m)
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fault.Field(name, "%q is neither a number nor unlimited", text)
		}
		b.Limits[m] = n
	}
	return nil
}

// showBudget writes the budget of a group.
func showBudget(ctx context.Context, s *Server, args []string, out io.Writer) error {
	group, err := s.findGroup(ctx, strings.Join(args, " "))
	if err != nil {
		return err
	}
	r, err := s.budgets.Show(ctx, group)
	if err != nil {
		return err
	}
	return writeBudget(out, r)
}

// findGroup returns the group with a UID, or the organization with a name.
func (s *Server) findGroup(ctx context.Context, name string) (resource.UID, error) {
	if name == "" {
		return "", fault.Field("group", "give the name of an organization or the UID of a group")
	}
	if uid, err := resource.ParseUID("group", name); err == nil {
		return uid, nil
	}
	org, err := iamdb.New(s.store).Organization(ctx, name)
	return org.UID, err
}

func writeBudget(out io.Writer, r budget.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BUDGET\tUSED\tLIMIT")
	for _, m := range resource.Metrics {
		used, limit := "", "unlimited"
		switch m {
		case resource.PullsPerDay:
			used = strconv.FormatInt(r.Usage.Pulls, 10)
		case resource.RequestsPerSecond:
		default:
			used = strconv.FormatInt(r.Usage.Stored[m], 10)
		}
		if n, ok := r.Limits[m]; ok {
			limit = strconv.FormatInt(n, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", m, used, limit)
	}
	return w.Flush()
}
