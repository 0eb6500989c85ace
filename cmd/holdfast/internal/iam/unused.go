package iam

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
)

// unusedKinds are the words for kinds of access that may be unused, in the order of the
// output.
var unusedKinds = []struct {
	word string
	kind accesspb.UnusedKind
}{
	{"role-bindings", accesspb.UnusedKind_UNUSED_KIND_ROLE_BINDING},
	{"identities", accesspb.UnusedKind_UNUSED_KIND_IDENTITY},
	{"invites", accesspb.UnusedKind_UNUSED_KIND_GROUP_INVITE},
	{"account-associations", accesspb.UnusedKind_UNUSED_KIND_ACCOUNT_ASSOCIATION},
}

func unusedAccess(simulated bool) noun.Noun {
	kind := func(u *accesspb.UnusedAccess) string {
		if u.GetPullToken() {
			return "pull-token"
		}
		for _, k := range unusedKinds {
			if k.kind == u.GetKind() {
				return k.word
			}
		}
		return ""
	}
	who := func(u *accesspb.UnusedAccess) string { return called(u.GetIdentity()) }
	instead := func(u *accesspb.UnusedAccess) string {
		switch {
		case u.GetKind() != accesspb.UnusedKind_UNUSED_KIND_ROLE_BINDING || len(u.GetUsedCapabilities()) == 0:
			return "none"
		case u.GetSuggestedRole() != nil:
			return u.GetSuggestedRole().GetName()
		}
		return "a role with " + strings.Join(u.GetUsedCapabilities(), " ")
	}
	n := noun.Noun{
		Area: "access", Use: "unused-access", One: "unused access", Message: noun.MessageOf(&accesspb.UnusedAccess{}),
		Columns: output.Columns(output.Text("kind", kind), "name", output.Text("identity", who), output.GroupOf("in", "uid"),
			"lastUseTime", output.Text("instead", instead), "uid"),
		Wide: output.Columns("createTime", "unusedCapabilityCount", "usedCapabilities"),
	}
	if simulated {
		n.Columns = append(n.Columns, output.Text("would", wouldDo))
	}
	return n
}

// wouldDo returns a short description of the effects of removing unused access.
func wouldDo(u *accesspb.UnusedAccess) string {
	c := u.GetConsequences()
	switch {
	case u.GetChange() == nil:
		return "no role fits"
	case c == nil:
		return "you may not change it"
	}
	parts := []string{}
	for _, part := range []struct {
		n    int32
		what string
	}{
		{c.GetLostTotal(), "lost"}, {c.GetLostUsedTotal(), "of these used recently"}, {c.GetGainedTotal(), "gained"},
		{c.GetWorkloadsTotal(), "locked out"}, {c.GetSessionsTotal(), "signed out"},
		{c.GetPullsTotal(), "refused of the pulls"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprint(part.n, " ", part.what))
		}
	}
	if len(parts) == 0 {
		return "change nothing"
	}
	return strings.Join(parts, ", ")
}

func unusedCommand(a *noun.App) *cobra.Command {
	var since, group, kind string
	var simulate bool
	cmd := &cobra.Command{
		Use: "unused", Short: "List access that is not used", Args: cobra.NoArgs,
		Long: "Lists role bindings that were not fully used, with a smaller role that would have been enough; workloads\n" +
			"and pull tokens that were not used; invites that nobody has used; and account associations that no\n" +
			"service has used. Access that was created within that time is omitted. Use is recorded with a precision\n" +
			"of a minute, and only since the server has supported it.",
		Example: "  holdfast access unused --since 90d -o csv",
	}
	cmd.Flags().StringVar(&since, "since", "90d", "not used for this `DURATION`, such as 90d")
	cmd.Flags().StringVar(&kind, "kind", "",
		"only this `KIND`: role-bindings, identities, invites or account-associations")
	cmd.Flags().BoolVar(&simulate, "simulate", false,
		"also show the effects of removing it: lost capabilities, and how many of them were used in 30 days")
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only in `GROUP` and its subgroups")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		period, err := noun.ParseDuration(since)
		if err != nil {
			return problem.Usage("--since: %v", err)
		}
		uidp, err := below(ctx, a, group)
		if err != nil {
			return err
		}
		var recorded time.Time
		known := false
		var lists []*accesspb.ListUnusedAccessRequest
		for _, k := range unusedKinds {
			if kind == "" || kind == k.word {
				known = true
				lists = append(lists, unusedRequest(k.kind, period, uidp, simulate))
			}
		}
		if !known {
			return problem.Usage("--kind: %q is not one of role-bindings, identities, invites, account-associations", kind)
		}
		if err := a.PrintList(ctx, unusedAccess(simulate), unusedItems(ctx, a, lists, &recorded)); err != nil {
			return err
		}
		if recorded.After(time.Now().Add(-period)) && (kind == "" || kind == unusedKinds[0].word) {
			a.Note("the use of role bindings is recorded since %s, which is less than %s",
				recorded.Format(time.DateTime), since)
		}
		return nil
	})
	return cmd
}

func unusedRequest(
	kind accesspb.UnusedKind, since time.Duration, uidp *commonpb.UIDPFilter, simulate bool,
) *accesspb.ListUnusedAccessRequest {
	r := &accesspb.ListUnusedAccessRequest{
		Kind: kind, Since: durationpb.New(since), Uidp: uidp, PageSize: 200, Simulate: simulate,
	}
	if simulate {
		r.PageSize = 20
	}
	return r
}

// unusedItems iterates over the items of several lists. It sets recorded to the time
// since when use is recorded.
func unusedItems(
	ctx context.Context, a *noun.App, lists []*accesspb.ListUnusedAccessRequest, recorded *time.Time,
) iter.Seq2[protoreflect.Message, error] {
	return func(yield func(protoreflect.Message, error) bool) {
		for _, req := range lists {
			for first := true; first || req.GetPageToken() != ""; first = false {
				got, err := signin.Call(ctx, accesspb.NewAccessUseServiceClient(a).ListUnusedAccess, req, "since=--since",
					"uidp=--group")
				if err != nil {
					yield(nil, err)
					return
				}
				*recorded, req.PageToken = got.GetRecordedSince().AsTime(), got.GetNextPageToken()
				for _, u := range got.GetUnused() {
					if !yield(u.ProtoReflect(), nil) {
						return
					}
				}
			}
		}
	}
}
