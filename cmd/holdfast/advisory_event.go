package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// An eventFlags is what a person says of an event.
type eventFlags struct {
	kind, note, author, reviewer, issue, fixed, reason, state string
	patched                                                   []string
}

// events is the commands of what happens to an advisory.
func (a *app) advisoryEvents() *cobra.Command {
	return a.branch("event", "Add events to advisories, and review them", a.addEvent(), a.reviewEvent())
}

// eventKinds are the types of event, in the order of an advisory's life.
const eventKinds = "detection, true-positive, false-positive, fixed, patched, analysis-not-planned, fix-not-planned or pending-upstream-fix"

func (a *app) addEvent() *cobra.Command {
	var e eventFlags
	cmd := &cobra.Command{
		Use: "add ADVISORY TYPE", Short: "Add an event to an advisory",
		Long: "Adds an event: " + eventKinds + ".\n" +
			"It waits for a review unless you may approve and say so with --state approved.",
		Example: "  holdfast advisories event add HFA-2345-6789-cfgh fixed --fixed-version 3.3.2-r1",
		Args:    cobra.ExactArgs(2),
		RunE: a.ask(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			uid, err := c.resolve(ctx, advisories(), args[0])
			if err != nil {
				return err
			}
			e.kind = args[1]
			event, err := e.event()
			if err != nil {
				return err
			}
			req := &advisoriespb.CreateAdvisoryEventRequest{Parent: uid, Event: event}
			m, err := c.write(ctx, cmd, advisoryService("AdvisoryWritingService").Methods().ByName("CreateAdvisoryEvent"), req.ProtoReflect(), eventFlagNames)
			if err != nil {
				return err
			}
			return a.show(eventNoun(), m)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&e.note, "note", "", "more about it, a line of `TEXT`")
	f.StringVar(&e.author, "author", "", "`NAME` of who says so; you unless given")
	f.StringVar(&e.reviewer, "reviewer", "", "`NAME` of who looked at it")
	f.StringVar(&e.issue, "issue", "", "`ADDRESS` where it is discussed")
	f.StringVar(&e.fixed, "fixed-version", "", "of fixed: the first `VERSION` without it")
	f.StringSliceVar(&e.patched, "patched-version", nil, "of patched: a `VERSION`; can be repeated")
	f.StringVar(&e.reason, "reason", "", "of false-positive: a `REASON` such as component-vulnerability-mismatch")
	f.StringVar(&e.state, "state", "", "`STATE` of its review: pending, approved, request-changes or rejected")
	must(cmd.RegisterFlagCompletionFunc("reason", cobra.FixedCompletions(enumWords(vulnpb.AdvisoryEvent_FalsePositiveDetermination_Type(0).Descriptor()), cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(enumWords(vulnpb.ReviewState(0).Descriptor()), cobra.ShellCompDirectiveNoFileComp)))
	addDryRun(cmd)
	return cmd
}

var eventFlagNames = map[string]string{
	"note": "--note", "author": "--author", "reviewer": "--reviewer", "issue": "--issue", "review_state": "--state", "parent": "ADVISORY",
}

// event is the message of the flags.
func (e eventFlags) event() (*vulnpb.AdvisoryEvent, error) {
	out := &vulnpb.AdvisoryEvent{Author: e.author, Reviewer: e.reviewer}
	if e.issue != "" {
		out.Issue = &e.issue
	}
	if e.state != "" {
		n, err := parseEnum(out.GetReviewState().Descriptor(), e.state)
		if err != nil {
			return nil, usage("--state: %v", err)
		}
		out.ReviewState = vulnpb.ReviewState(n)
	}
	switch e.kind {
	case "detection":
		out.Type = &vulnpb.AdvisoryEvent_Detection_{Detection: &vulnpb.AdvisoryEvent_Detection{
			Type: &vulnpb.AdvisoryEvent_Detection_Manual_{Manual: &vulnpb.AdvisoryEvent_Detection_Manual{}},
		}}
	case "true-positive":
		out.Type = &vulnpb.AdvisoryEvent_TruePositiveDetermination_{TruePositiveDetermination: &vulnpb.AdvisoryEvent_TruePositiveDetermination{Note: e.note}}
	case "false-positive":
		d := &vulnpb.AdvisoryEvent_FalsePositiveDetermination{Note: e.note}
		if e.reason != "" {
			n, err := parseEnum(d.GetType().Descriptor(), e.reason)
			if err != nil {
				return nil, usage("--reason: %v", err)
			}
			d.Type = vulnpb.AdvisoryEvent_FalsePositiveDetermination_Type(n)
		}
		out.Type = &vulnpb.AdvisoryEvent_FalsePositiveDetermination_{FalsePositiveDetermination: d}
	case "fixed":
		out.Type = &vulnpb.AdvisoryEvent_Fixed_{Fixed: &vulnpb.AdvisoryEvent_Fixed{FixedVersion: e.fixed, Note: e.note}}
	case "patched":
		out.Type = &vulnpb.AdvisoryEvent_Patched_{Patched: &vulnpb.AdvisoryEvent_Patched{PatchedVersions: e.patched, Note: e.note}}
	case "analysis-not-planned":
		out.Type = &vulnpb.AdvisoryEvent_AnalysisNotPlanned_{AnalysisNotPlanned: &vulnpb.AdvisoryEvent_AnalysisNotPlanned{Note: e.note}}
	case "fix-not-planned":
		out.Type = &vulnpb.AdvisoryEvent_FixNotPlanned_{FixNotPlanned: &vulnpb.AdvisoryEvent_FixNotPlanned{Note: e.note}}
	case "pending-upstream-fix":
		out.Type = &vulnpb.AdvisoryEvent_PendingUpstreamFix_{PendingUpstreamFix: &vulnpb.AdvisoryEvent_PendingUpstreamFix{Note: e.note}}
	default:
		return nil, usage("%q is none of %s", e.kind, eventKinds)
	}
	return out, nil
}

func (a *app) reviewEvent() *cobra.Command {
	var reviewer string
	cmd := &cobra.Command{
		Use: "review EVENT-UID STATE", Short: "Approve or reject an event, or ask for changes",
		Long:    "Gives an event the state approved, rejected, request-changes or pending. The first two are for good.",
		Example: "  holdfast advisories event review 41c2…/0191…/8a3f… approved",
		Args:    cobra.ExactArgs(2),
		RunE: a.ask(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if !isUID(args[0]) {
				return usage("%q is not a uid: holdfast advisories get shows those of an advisory's events", args[0])
			}
			state, err := parseEnum(vulnpb.ReviewState(0).Descriptor(), args[1])
			if err != nil {
				return usage("%v", err)
			}
			req := &advisoriespb.UpdateAdvisoryEventRequest{
				Event:      &vulnpb.AdvisoryEvent{Uid: args[0], ReviewState: vulnpb.ReviewState(state), Reviewer: reviewer},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"review_state"}},
			}
			if reviewer != "" {
				req.UpdateMask.Paths = append(req.UpdateMask.Paths, "reviewer")
			}
			m, err := c.write(ctx, cmd, advisoryService("AdvisoryWritingService").Methods().ByName("UpdateAdvisoryEvent"), req.ProtoReflect(),
				map[string]string{"uid": "EVENT-UID", "review_state": "STATE", "reviewer": "--reviewer"})
			if err != nil {
				return err
			}
			return a.show(eventNoun(), m)
		}),
	}
	cmd.Flags().StringVar(&reviewer, "reviewer", "", "`NAME` of who looked at it; you unless given")
	addDryRun(cmd)
	return cmd
}

func eventNoun() noun {
	return noun{
		use: "events", one: "event", message: (*vulnpb.AdvisoryEvent)(nil).ProtoReflect().Descriptor(),
		columns: columnsOf("uid", "reviewState", "author", "reviewer"), wide: columnsOf("createTime", "issue"),
	}
}

// countsText says what became of records.
func countsText(n *advisoriespb.ImportCounts) string {
	text := fmt.Sprintf("%d new, %d changed, %d as they were", n.GetCreated(), n.GetUpdated(), n.GetUnchanged())
	if n.GetWithdrawn() > 0 {
		text += fmt.Sprintf(", %d of them withdrawn", n.GetWithdrawn())
	}
	if n.GetFailed() > 0 {
		text += fmt.Sprintf(", %d not taken", n.GetFailed())
	}
	return text
}
