package noun

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

const (
	askAbove     = 10 // confirmLoss asks for confirmation if more identities than this lose access
	maxSimulated = 20 // maximum number of changes that the server simulates in one call
	shownCaps    = 6  // maximum number of capabilities in a line
	shownLines   = 20
)

// simulated returns a request as a change that the server can simulate, or nil if it
// cannot.
func simulated(req protoreflect.Message) *accesspb.SimulatedChange {
	change := &accesspb.SimulatedChange{}
	fields := change.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if fields.Get(i).Message() == req.Descriptor() {
			change.ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfMessage(req))
			return change
		}
	}
	return nil
}

// consequences asks the server for the effects of changes. It returns nil if these
// changes cannot be simulated, or if the server is too old.
func (a *App) consequences(ctx context.Context, requests ...protoreflect.Message) (*accesspb.SimulateResponse, error) {
	req := &accesspb.SimulateRequest{}
	for _, r := range requests {
		if c := simulated(r); c != nil {
			req.Changes = append(req.Changes, c)
		}
	}
	if len(req.GetChanges()) == 0 || len(req.GetChanges()) > maxSimulated {
		return nil, nil
	}
	got, err := accesspb.NewSimulationServiceClient(a).Simulate(ctx, req)
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	if err != nil {
		return nil, signin.Refused(err, nil)
	}
	return got, nil
}

// noteConsequences prints the effects of changes.
func (a *App) noteConsequences(ctx context.Context, requests ...protoreflect.Message) error {
	got, err := a.consequences(ctx, requests...)
	if err != nil || got == nil {
		return err
	}
	for _, line := range Describe(got, 30) {
		a.Note("%s", line)
	}
	return nil
}

// confirmLoss asks for confirmation if a change takes access from many identities and
// there is a terminal.
func (a *App) confirmLoss(ctx context.Context, cmd *cobra.Command, req protoreflect.Message) error {
	lines := a.lossOf(ctx, cmd, []protoreflect.Message{req})
	if len(lines) == 0 {
		return nil
	}
	return a.askToContinue(ctx, lines, "nothing was changed")
}

// lossOf returns the lines to print before changes that take access from many identities.
// It returns nil if there is no terminal. It also returns nil if the simulation fails,
// because the change itself will report the error.
func (a *App) lossOf(ctx context.Context, cmd *cobra.Command, requests []protoreflect.Message) []string {
	yes, _ := cmd.Flags().GetBool("yes")
	if yes || isDry(cmd) || !output.IsTerminal(a.In) {
		return nil
	}
	got, err := a.consequences(ctx, requests...)
	if err != nil || got.GetLostIdentities() <= askAbove {
		return nil
	}
	return Describe(got, 30)
}

// Describe returns the effects as sentences. usedDays is the number of days in which the lost
// capabilities that were used are counted.
func Describe(r *accesspb.SimulateResponse, usedDays int) (lines []string) {
	if r.GetGainedTotal()+r.GetLostTotal()+r.GetWorkloadsTotal()+r.GetSessionsTotal()+r.GetPullsTotal() == 0 {
		lines = append(lines, "nobody would gain or lose anything")
	}
	lines = append(lines,
		describeChanges("gain", r.GetGained(), r.GetGainedTotal(), r.GetGainedHidden(), r.GetGainedIdentities())...)
	lines = append(lines,
		describeChanges("lose", r.GetLost(), r.GetLostTotal(), r.GetLostHidden(), r.GetLostIdentities())...)
	if n := r.GetLostUsedTotal(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d of the lost capabilities were used in the last %d days", n, usedDays))
	}
	if n := r.GetWorkloadsTotal(); n > 0 {
		var names []string
		for _, i := range r.GetWorkloads() {
			names = append(names, called(i))
		}
		lines = append(lines, fmt.Sprintf("%s could no longer exchange a token%s", Count(n, "workload"), list(names)))
	}
	if n := r.GetSessionsTotal(); n > 0 {
		var names []string
		for _, s := range r.GetSessions() {
			names = append(names, fmt.Sprintf("%s (%d)", called(s.GetIdentity()), s.GetCount()))
		}
		lines = append(lines, fmt.Sprintf("%s would end%s", Count(n, "session"), list(names)))
	}
	if n := r.GetPullsTotal(); n > 0 {
		var names []string
		for _, p := range r.GetPulls() {
			names = append(names, fmt.Sprintf("%s from %s (%d)", called(p.GetIdentity()), p.GetRepoPath(), p.GetCount()))
		}
		lines = append(lines, fmt.Sprintf("%s of the last 30 days would have been refused%s", Count(n, "pull"), list(names)))
	}
	for _, why := range r.GetReasons() {
		_, text, _ := strings.Cut(why, ": ")
		lines = append(lines, "not complete: "+text)
	}
	return lines
}

// describeChanges returns one line for each identity and group that would gain or lose
// capabilities.
func describeChanges(verb string, changes []*accesspb.AccessChange, total, hidden, identities int32) (lines []string) {
	if total == 0 {
		return nil
	}
	lines = []string{fmt.Sprintf("%s would %s %s", Count(identities, "identity"), verb, Count(total, "capability"))}
	type place struct{ who, where string }
	var places []place
	caps := map[place][]string{}
	for _, c := range changes {
		p := place{
			called(c.GetIdentity()), cmp.Or(c.GetGroup().GetDisplayName(), c.GetGroup().GetName(), c.GetGroup().GetUid()),
		}
		if !slices.Contains(places, p) {
			places = append(places, p)
		}
		caps[p] = append(caps[p], c.GetCapability())
	}
	for i, p := range places {
		if i == shownLines {
			lines = append(lines, "  and others")
			break
		}
		lines = append(lines, fmt.Sprintf("  %s would %s on %s%s", p.who, verb, p.where, list(caps[p])))
	}
	if hidden > 0 {
		lines = append(lines, fmt.Sprintf("  %d of these are on groups whose role bindings you may not see", hidden))
	}
	return lines
}

// called returns the name of an identity for people.
func called(i *iampb.RoleBindingIdentity) string {
	return cmp.Or(i.GetDisplayName(), i.GetName(), i.GetEmail(), i.GetUid())
}

// list returns names after a colon, or "" if there are none.
func list(names []string) string {
	if len(names) == 0 {
		return ""
	}
	rest := ""
	if n := len(names) - shownCaps; n > 0 {
		names, rest = names[:shownCaps], fmt.Sprintf(" and %d more", n)
	}
	return ": " + strings.Join(names, ", ") + rest
}

// Count returns a number and a noun, in the plural if necessary.
func Count[N int | int32 | int64](n N, one string) string {
	switch {
	case n == 1:
		return "1 " + one
	case strings.HasSuffix(one, "y") && !strings.HasSuffix(one, "ay"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(one, "y"))
	}
	return fmt.Sprintf("%d %ss", n, one)
}
