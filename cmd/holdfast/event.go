package main

import (
	"context"

	"github.com/spf13/cobra"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
)

// events is the commands about where changes are told.
func (a *app) events() *cobra.Command {
	n := deliveries()
	kept := a.branch(n.use, "See and replay what a sink has not taken", a.listCommand(n), a.getCommand(n), a.replay())
	kept.Long = n.about
	return a.branch("events", "Send changes to other programs", a.noun(subscriptions()), kept)
}

func subscriptions() noun {
	return noun{
		area: "events", use: "subscriptions", one: "subscription",
		about: "A subscription sends every event of a group, and of everything below it, to an https address, as signed\n" +
			"CloudEvents. Each is sent at least once, and those about one thing in their order.",
		example:  "  holdfast events subscriptions create https://hooks.example.com/holdfast --parent acme",
		message:  messageOf(&eventspb.Subscription{}),
		argument: "sink",
		columns:  columnsOf("uid", "sink", "createTime"),
	}
}

func deliveries() noun {
	return noun{
		area: "events", use: "deliveries", one: "delivery",
		about: "An event that a sink has not taken within a day is kept here, up to 10,000 of a subscription, until it is\n" +
			"replayed and taken.",
		message: messageOf(&deliveriespb.Delivery{}),
		filters: []field{
			{flag: "subscription", path: "uidp.children_of", ref: subscriptions, help: "only those of this subscription, a `UID`"},
		},
		columns: columnsOf("uid", "type", "subject", "eventTime", "attempts", "error"),
		wide:    columnsOf("eventId", "replaying", "createTime", "updateTime"),
	}
}

// replay sends events again that were given up.
func (a *app) replay() *cobra.Command {
	return &cobra.Command{
		Use: "replay UID...", Short: "Send events again that were given up",
		Long:    "Sends one event again, or all of a subscription's. Those that the sink takes then leave the list.",
		Example: "  holdfast events deliveries replay 41c2bd7f0f6a2c11…/5f3c…",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			replay := deliveriespb.NewDeliveriesServiceClient(a).ReplayDeliveries
			for _, uid := range args {
				m, err := call(ctx, replay, &deliveriespb.ReplayDeliveriesRequest{Uid: uid}, map[string]string{"uid": "UID"})
				if err != nil {
					return err
				}
				a.note("%d events are sent again", m.GetCount())
			}
			return nil
		}),
	}
}

// entries is how changes are shown.
func entries() noun {
	return noun{
		area: "audit", use: "entries", one: "entry", id: "id",
		message: messageOf(&auditpb.Entry{}),
		filters: []field{
			{flag: "group", path: "group_uid", ref: groups, help: "only those in this `GROUP` and below it"},
			{flag: "subject", path: "subject", help: "only those to what has this `UID`"},
			{flag: "by", path: "identity_uid", ref: identities, help: "only those by this `IDENTITY`"},
			{flag: "type", path: "type", help: "only those of this `TYPE`, such as iam.group or iam.group.deleted.v1"},
			{flag: "since", path: "since", help: "only those made at this `TIME` or later"},
			{flag: "until", path: "until", help: "only those made before this `TIME`"},
		},
		columns: columnsOf("time", "type", "subject", "by=actor.subject", "from=actor.remoteAddress"),
		wide: columnsOf("actor=actor.uid", "issuer=actor.issuer", "request=actor.requestId",
			"id", "before", "after"),
	}
}

// audit shows who changed what.
func (a *app) audit() *cobra.Command {
	cmd := a.listCommand(entries())
	cmd.Use, cmd.Short, cmd.Aliases = "audit", "See who changed what, when and from where", nil
	cmd.Long = "Lists changes, the newest first. You see those that were made where you hold identity.list, and the capability\n" +
		"that lists what was changed. -o json shows each thing as it was before and after."
	cmd.Example = "  holdfast audit --group acme/platform --type iam.rolebindings --limit 20"
	must(cmd.Flags().MarkHidden("order-by")) // there is one order
	return cmd
}
