package advisories

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// eventFlags are the flags of an event.
type eventFlags struct {
	note, fixed, reason string
	patched             []string
}

// advisoryEvents returns the commands about events of advisories.
func advisoryEvents(a *noun.App) *cobra.Command {
	return a.Branch("event", "Add and review events of advisories", addEvent(a), reviewEvent(a))
}

// eventKinds are the types of events, in their usual order.
const eventKinds = "detection, true-positive, false-positive, fixed, patched, analysis-not-planned, " +
	"fix-not-planned or pending-upstream-fix"

func addEvent(a *noun.App) *cobra.Command {
	var e eventFlags
	cmd := &cobra.Command{
		Use: "add ADVISORY TYPE", Short: "Add an event to an advisory",
		Long: "Adds an event: " + eventKinds + ".\n" +
			"It is pending until it is reviewed, unless you can approve events and use --state approved.",
		Example: "  holdfast advisories event add HFA-2345-6789-cfgh fixed --fixed-version 3.3.2-r1",
		Args:    cobra.ExactArgs(2),
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			uid, err := a.Resolve(ctx, advisories(), args[0])
			if err != nil {
				return err
			}
			event, err := e.event(args[1])
			if err != nil {
				return err
			}
			if err := a.Fill(ctx, cmd, eventFields(), event); err != nil {
				return err
			}
			req := &advisoriespb.CreateAdvisoryEventRequest{Parent: uid, Event: event}
			return writeEvent(ctx, a, cmd, "CreateAdvisoryEvent", req, map[string]string{
				"note": "--note", "author": "--author", "reviewer": "--reviewer", "issue": "--issue", "review_state": "--state",
				"parent": "ADVISORY",
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&e.note, "note", "", "note, one line of `TEXT`")
	f.StringVar(&e.fixed, "fixed-version", "", "for fixed: the first `VERSION` that is not affected")
	f.StringSliceVar(&e.patched, "patched-version", nil, "for patched: `VERSION`; can be repeated")
	f.StringVar(&e.reason, "reason", "", "for false-positive: `REASON`, such as component-vulnerability-mismatch")
	reasons := vulnpb.AdvisoryEvent_FalsePositiveDetermination_Type(0).Descriptor()
	noun.CompleteWords(cmd, "reason", output.EnumWords(reasons))
	a.RegisterFields(cmd, eventFields(), noun.MessageOf(&vulnpb.AdvisoryEvent{}))
	noun.AddDryRun(cmd)
	return cmd
}

func eventFields() []noun.Field {
	return []noun.Field{
		{Flag: "author", Help: "`NAME` of the author (default: you)"},
		{Flag: "reviewer", Help: "`NAME` of the reviewer"},
		{Flag: "issue", Help: "`ADDRESS` of the issue"},
		{Flag: "state", Path: "review_state", Help: "review `STATE`: pending, approved, request-changes or rejected"},
	}
}

// writeEvent calls a method that writes an event, and prints the result.
func writeEvent(
	ctx context.Context, a *noun.App, cmd *cobra.Command, method protoreflect.Name, req proto.Message,
	flags map[string]string,
) error {
	m, err := a.Write(ctx, cmd, advisoryService("AdvisoryWritingService").Methods().ByName(method), req.ProtoReflect(),
		flags)
	if err != nil {
		return err
	}
	return a.Show(ctx, output.View{
		Plural: "events", Columns: output.Columns("uid", "reviewState", "author", "reviewer"),
		Wide: output.Columns("createTime", "issue"),
	}, m.Interface())
}

// eventTypes returns the fields in the oneof that has one field for each event type.
func eventTypes() protoreflect.FieldDescriptors {
	return noun.MessageOf(&vulnpb.AdvisoryEvent{}).Oneofs().ByName("type").Fields()
}

// eventKind returns the word for a type of event.
func eventKind(fd protoreflect.FieldDescriptor) string {
	return strings.ReplaceAll(strings.TrimSuffix(string(fd.Name()), "_determination"), "_", "-")
}

// event returns an event of the given type.
func (e eventFlags) event(kind string) (*vulnpb.AdvisoryEvent, error) {
	out := &vulnpb.AdvisoryEvent{}
	for i := range eventTypes().Len() {
		if fd := eventTypes().Get(i); eventKind(fd) == kind {
			return out, e.describe(out.ProtoReflect().Mutable(fd).Message())
		}
	}
	return nil, problem.Usage("%q is not one of %s", kind, eventKinds)
}

// describe sets the fields that only some types of events have.
func (e eventFlags) describe(m protoreflect.Message) error {
	if fd := m.Descriptor().Fields().ByName("note"); fd != nil {
		noun.Put(m, "note", e.note)
	}
	switch d := m.Interface().(type) {
	case *vulnpb.AdvisoryEvent_Detection:
		d.Type = &vulnpb.AdvisoryEvent_Detection_Manual_{Manual: &vulnpb.AdvisoryEvent_Detection_Manual{}}
	case *vulnpb.AdvisoryEvent_Fixed:
		d.FixedVersion = e.fixed
	case *vulnpb.AdvisoryEvent_Patched:
		d.PatchedVersions = e.patched
	case *vulnpb.AdvisoryEvent_FalsePositiveDetermination:
		if e.reason == "" {
			return nil
		}
		n, err := noun.ParseEnum(d.GetType().Descriptor(), e.reason)
		if err != nil {
			return problem.Usage("--reason: %v", err)
		}
		d.Type = vulnpb.AdvisoryEvent_FalsePositiveDetermination_Type(n)
	}
	return nil
}

func reviewEvent(a *noun.App) *cobra.Command {
	var reviewer string
	cmd := &cobra.Command{
		Use: "review EVENT-UID STATE", Short: "Approve or reject an event, or request changes",
		Long:    "Sets the review state to approved, rejected, request-changes or pending. The first two are final.",
		Example: "  holdfast advisories event review 41c2…/0191…/8a3f… approved",
		Args:    cobra.ExactArgs(2),
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if !settings.IsUID(args[0]) {
				return problem.Usage("%q is not a uid; holdfast advisories get shows the uids of events", args[0])
			}
			state, err := noun.ParseEnum(vulnpb.ReviewState(0).Descriptor(), args[1])
			if err != nil {
				return problem.Usage("%v", err)
			}
			req := &advisoriespb.UpdateAdvisoryEventRequest{
				Event:      &vulnpb.AdvisoryEvent{Uid: args[0], ReviewState: vulnpb.ReviewState(state), Reviewer: reviewer},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"review_state"}},
			}
			if reviewer != "" {
				req.UpdateMask.Paths = append(req.UpdateMask.Paths, "reviewer")
			}
			return writeEvent(ctx, a, cmd, "UpdateAdvisoryEvent", req,
				map[string]string{"uid": "EVENT-UID", "review_state": "STATE", "reviewer": "--reviewer"})
		}),
	}
	cmd.Flags().StringVar(&reviewer, "reviewer", "", "`NAME` of the reviewer (default: you)")
	noun.AddDryRun(cmd)
	return cmd
}

// countsText returns the numbers of imported records as text.
func countsText(n *advisoriespb.ImportCounts) string {
	text := fmt.Sprintf("%d new, %d updated, %d unchanged", n.GetCreated(), n.GetUpdated(), n.GetUnchanged())
	if older := n.GetOlder(); older > 0 {
		text += fmt.Sprintf(", %d skipped because the stored ones are newer", older)
	}
	if n.GetWithdrawn() > 0 {
		text += fmt.Sprintf(", %d of them withdrawn", n.GetWithdrawn())
	}
	if n.GetRemoved() > 0 {
		text += fmt.Sprintf(", %d removed", n.GetRemoved())
	}
	if n.GetFailed() > 0 {
		text += fmt.Sprintf(", %d not imported", n.GetFailed())
	}
	return text
}
