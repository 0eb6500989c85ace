// Package events contains the commands about subscriptions, deliveries and the audit log.
package events

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
)

// Command returns the commands about subscriptions and deliveries.
func Command(a *noun.App) *cobra.Command {
	return a.Branch("events", "Send events to webhooks, and see whether they arrive",
		a.Command(subscriptions()), a.Command(deliveries()))
}

func subscriptions() noun.Noun {
	return noun.Noun{
		Area: "events", Use: "subscriptions", One: "subscription",
		Short: "Send events to a webhook",
		About: "A subscription sends the events of a group, and of everything below it, to an https address as signed\n" +
			"CloudEvents. Each event is sent at least once, and the events of one subject are sent in order.",
		Example:  "  holdfast events subscriptions create https://hooks.example.com/holdfast --parent acme",
		Message:  noun.MessageOf(&eventspb.Subscription{}),
		Argument: "sink",
		Columns:  output.Columns("sink", output.GroupOf("group", "uid"), output.Text("state", state), "createTime"),
		Wide:     output.Columns("uid", "failingSince=failing.sinceTime", "error=failing.error"),
		Extra:    []func(*noun.App) *cobra.Command{test},
	}
}

// state returns whether the address of a subscription accepts events.
func state(v *eventspb.Subscription) string {
	if v.GetFailing() == nil {
		return "not failing"
	}
	return "failing since " + v.GetFailing().GetSinceTime().AsTime().UTC().Format(time.RFC3339) + ": " +
		v.GetFailing().GetError()
}

func test(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "test UID", Short: "Send a test event to a subscription",
		Long: "Sends an event of the type events.subscription.tested to the address of a subscription and prints the\n" +
			"result.",
		Example: "  holdfast events subscriptions test UID",
		Args:    cobra.ExactArgs(1),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return send(ctx, a, &deliveriespb.TestSubscriptionRequest{Uid: args[0]})
		}),
	}
}

// send sends an event to a subscription now, and prints the result.
func send(ctx context.Context, a *noun.App, req *deliveriespb.TestSubscriptionRequest) error {
	call := deliveriespb.NewDeliveriesServiceClient(a).TestSubscription
	m, err := signin.Call(ctx, call, req, "uid=UID", "event_id=EVENT")
	if err != nil {
		return err
	}
	took := m.GetTook().AsDuration().Round(time.Millisecond)
	if !m.GetTaken() {
		return problem.New(problem.ExitError, "after %s: %s", took, m.GetError())
	}
	a.Note("the event %s was accepted after %s", m.GetEventId(), took)
	return nil
}

func resend(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "resend UID EVENT", Short: "Send an event of the delivery log again",
		Long: "Sends an event again to the subscription with UID, immediately and once, and prints the result. EVENT\n" +
			"is the id of an event in its delivery log.",
		Example: "  holdfast events deliveries resend 41c2bd7f0f6a2c11…/5f3c… 4K7Q…",
		Args:    cobra.ExactArgs(2),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return send(ctx, a, &deliveriespb.TestSubscriptionRequest{Uid: args[0], EventId: args[1]})
		}),
	}
}

func deliveryLog(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "log UID", Short: "List the latest attempts to send events to a subscription",
		Long:    "Lists the latest 100 attempts to send an event to the subscription with UID, the latest first.",
		Example: "  holdfast events deliveries log 41c2bd7f0f6a2c11…/5f3c…",
		Args:    cobra.ExactArgs(1),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			list := deliveriespb.NewDeliveriesServiceClient(a).ListAttempts
			m, err := signin.Call(ctx, list, &deliveriespb.ListAttemptsRequest{Uid: args[0]}, "uid=UID")
			if err != nil {
				return err
			}
			items := func(yield func(protoreflect.Message, error) bool) {
				for _, attempt := range m.GetAttempts() {
					if !yield(attempt.ProtoReflect(), nil) {
						return
					}
				}
			}
			return a.PrintList(ctx, attempts(), items)
		}),
	}
}

func attempts() noun.Noun {
	return noun.Noun{
		Area: "events", Use: "attempts", One: "attempt", ID: "eventId",
		Message: noun.MessageOf(&deliveriespb.Attempt{}),
		Columns: output.Columns("time", output.Text("type", attemptedType).InCSV("type"), "status", "latency",
			output.Text("result", result), "next=nextTime", output.Whole("event", "eventId")),
		Wide: output.Columns("subject", "error", "response"),
	}
}

// result returns the beginning of the response, or the error if there was no response.
func result(a *deliveriespb.Attempt) string {
	if a.GetTaken() {
		return "accepted"
	}
	return cmp.Or(a.GetResponse(), a.GetError())
}

func deliveries() noun.Noun {
	return noun.Noun{
		Area: "events", Use: "deliveries", One: "delivery", Short: "List and replay failed deliveries",
		About: "An event that a sink has not accepted within a day is stored here, up to 10,000 for each subscription,\n" +
			"until it is replayed successfully.",
		Message: noun.MessageOf(&deliveriespb.Delivery{}),
		Filters: []noun.Field{
			{Flag: "subscription", Path: "uidp.children_of", Ref: subscriptions,
				Help: "only deliveries of the subscription with `UID`"},
		},
		Columns: output.Columns("eventTime", output.Text("type", deliveredType).InCSV("type"),
			output.PathOf("subject", "subject"), "attempts", "error"),
		Wide:  output.Columns("uid", "subjectUid=subject", "eventId", "replaying", "createTime", "updateTime"),
		Extra: []func(*noun.App) *cobra.Command{replay, deliveryLog, resend},
	}
}

func replay(a *noun.App) *cobra.Command {
	return &cobra.Command{
		Use: "replay UID...", Short: "Send failed events again",
		Long:    "Sends an event, or all events of a subscription, again. Delivered events are removed from the list.",
		Example: "  holdfast events deliveries replay 41c2bd7f0f6a2c11…/5f3c…",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			replay := deliveriespb.NewDeliveriesServiceClient(a).ReplayDeliveries
			for _, uid := range args {
				m, err := signin.Call(ctx, replay, &deliveriespb.ReplayDeliveriesRequest{Uid: uid}, "uid=UID")
				if err != nil {
					return err
				}
				a.Note("%d events will be sent again", m.GetCount())
			}
			return nil
		}),
	}
}

// entries returns the Noun for the entries of the audit log.
func entries() noun.Noun {
	return noun.Noun{
		Area: "audit", Use: "entries", One: "entry", ID: "id",
		Message: noun.MessageOf(&auditpb.Entry{}),
		Filters: []noun.Field{
			{Flag: "group", Path: "group_uid", Ref: noun.Groups, Help: "only changes in `GROUP` and its subgroups"},
			{Flag: "subject", Help: "only changes of the resource with `UID`"},
			{Flag: "by", Path: "identity_uid", Ref: iam.Identities, Help: "only changes made by `IDENTITY`"},
			{Flag: "type", Help: "only changes of `TYPE`, such as iam.group or iam.group.deleted.v1"},
			{Flag: "since", Help: "only changes at or after `TIME`"},
			{Flag: "until", Help: "only changes before `TIME`"},
		},
		Columns: output.Columns("time", output.Text("type", entryType).InCSV("type"), subjectColumn(), actorColumn(),
			"from=actor.remoteAddress"),
		Wide: output.Columns("subjectUid=subject", "actor=actor.uid", "upstream=actor.subject",
			"issuer=actor.issuer", "request=actor.requestId",
			"id", "before", "after"),
	}
}

// Audit returns the command that lists the audit log.
func Audit(a *noun.App) *cobra.Command {
	cmd := a.ListCommand(entries())
	cmd.Use, cmd.Short, cmd.Aliases = "audit", "List changes, with their author, time and origin", nil
	cmd.Long = "Lists changes, newest first. You can see changes in groups where you have the capability identity.list\n" +
		"and the capability to list the changed resources. Use -o json to print resources before and after the\n" +
		"change."
	cmd.Example = "  holdfast audit --group acme/platform --type iam.rolebindings --limit 20\n" +
		"  holdfast audit --follow"
	problem.Must(cmd.Flags().MarkHidden("order-by")) // the API supports only one order
	list := cmd.RunE
	follow := cmd.Flags().BoolP("follow", "f", false, "print changes as they happen, until you stop it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*follow {
			return list(cmd, args)
		}
		return followAudit(a)(cmd, args)
	}
	cmd.MarkFlagsMutuallyExclusive("follow", "since")
	cmd.MarkFlagsMutuallyExclusive("follow", "until")
	return cmd
}
