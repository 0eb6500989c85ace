package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
)

// federationMethod is a method of the service that tells how the tokens of
// others are judged.
func federationMethod(name protoreflect.Name) protoreflect.MethodDescriptor {
	return serviceOf(federationpb.File_holdfast_federation_v1_federation_proto).Methods().ByName(name)
}

func (a *app) explain() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "explain [IDENTITY] --token-file FILE", Short: "Tell whether a workload's token fits an identity, and why not",
		Long: "Holds the token against the identity, or against all that you may read, claim by claim. Nothing is issued.\n" +
			"The exit code is 3 if the token fits none.",
		Example: "  holdfast iam identities explain acme/platform/ci --token-file token.jwt",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.completeArgs(identities()),
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if file == "" {
				return usage("--token-file is needed: the workload's token")
			}
			token, err := readText(a.in, file)
			if err != nil {
				return fmt.Errorf("--token-file: %w", err)
			}
			c, err := a.client(ctx)
			if err != nil {
				return err
			}
			req := &federationpb.ExplainTokenRequest{Token: token}
			if len(args) > 0 {
				if req.IdentityUid, err = c.resolve(ctx, identities(), args[0]); err != nil {
					return err
				}
			}
			m, err := c.call(ctx, federationMethod("ExplainToken"), req, map[string]string{"token": "--token-file", "identity_uid": "IDENTITY"})
			if err != nil {
				return err
			}
			return a.explained(m)
		}),
	}
	// It hides the flag of the same name that every command has: here it is not
	// one's own token.
	cmd.Flags().StringVar(&file, "token-file", "", "`FILE` that holds the workload's token; - is standard input")
	return cmd
}

// explained prints an explanation. That no identity fits is a result, not an
// error.
func (a *app) explained(m protoreflect.Message) error {
	found, ok := m.Interface().(*federationpb.ExplainTokenResponse)
	if !ok {
		return fmt.Errorf("unexpected answer %s", m.Descriptor().Name())
	}
	format, err := a.value("output")
	if err != nil {
		return err
	}
	switch format.value {
	case "", "table", "wide":
		a.sayExplained(found)
	case "json", "yaml":
		err = a.show(explanations(), m)
	default:
		err = a.showAll(explanations(), m, "explanations")
	}
	if err != nil {
		return err
	}
	if found.GetIncomplete() {
		a.note("there are more identities than were looked at")
	}
	for _, e := range found.GetExplanations() {
		if e.GetAccepted() {
			return nil
		}
	}
	return &problem{code: exitNo}
}

func explanations() noun {
	return noun{
		use: "explanations", one: "explanation", id: "identityUid", message: (*federationpb.Explanation)(nil).ProtoReflect().Descriptor(),
		columns: []column{
			{name: "identity", path: "identityName"}, {name: "uid", path: "identityUid"}, {name: "accepted", path: "accepted"},
			{name: "because", text: func(m protoreflect.Message) string {
				e, _ := m.Interface().(*federationpb.Explanation)
				return misfits(e.GetChecks())
			}},
		},
	}
}

func (a *app) sayExplained(found *federationpb.ExplainTokenResponse) {
	if len(found.GetExplanations()) == 0 {
		a.note("no identities to hold it against")
	}
	for i, e := range found.GetExplanations() {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		verdict := a.paint(red, "refused")
		if e.GetAccepted() {
			verdict = a.paint(green, "accepted")
		}
		fmt.Fprintf(a.out, "%s %s: %s\n", printable(e.GetIdentityName()), e.GetIdentityUid(), verdict)
		for _, c := range e.GetChecks() {
			a.sayCheck(c)
		}
	}
}

// sayCheck prints one line for what fits, and expected against received, one
// below the other, for what does not.
func (a *app) sayCheck(c *federationpb.Check) {
	if c.GetOk() {
		fmt.Fprintf(a.out, "  %s %-10s %s\n", a.paint(green, "ok"), printable(c.GetClaim()), printable(c.GetReceived()))
		return
	}
	fmt.Fprintf(a.out, "  %s %-10s expected %s\n", a.paint(red, "no"), printable(c.GetClaim()), printable(c.GetExpected()))
	fmt.Fprintf(a.out, "                received %s\n", printable(orNothing(c.GetReceived())))
	if c.GetCause() != "" {
		fmt.Fprintf(a.out, "                %s\n", printable(c.GetCause()))
	}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// misfits is what does not fit, in one cell.
func misfits(checks []*federationpb.Check) string {
	var all []string
	for _, c := range checks {
		if !c.GetOk() {
			all = append(all, fmt.Sprintf("%s: expected %s, received %s", c.GetClaim(), c.GetExpected(), orNothing(c.GetReceived())))
		}
	}
	return strings.Join(all, "; ")
}

// showAll prints the messages that a field of an answer lists.
func (a *app) showAll(n noun, m protoreflect.Message, field protoreflect.Name) error {
	out, err := a.printer(n, true)
	if err != nil {
		return err
	}
	all := m.Get(m.Descriptor().Fields().ByName(field)).List()
	for i := range all.Len() {
		if err := out.add(all.Get(i).Message()); err != nil {
			return err
		}
	}
	return out.close()
}

func (a *app) denials() *cobra.Command {
	return &cobra.Command{
		Use: "denials IDENTITY", Short: "List the tokens that an identity was lately refused for, and why",
		Long: "What a token said that its issuer has not signed may be made up; the column signed tells.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeArgs(identities()),
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, args []string) error {
			uid, err := c.resolve(ctx, identities(), args[0])
			if err != nil {
				return err
			}
			req := &federationpb.ListDenialsRequest{IdentityUid: uid}
			m, err := c.call(ctx, federationMethod("ListDenials"), req, map[string]string{"identity_uid": "IDENTITY"})
			if err != nil {
				return err
			}
			return a.showAll(denialsNoun(), m, "denials")
		}),
	}
}

func denialsNoun() noun {
	return noun{
		use: "denials", one: "denial", id: "requestId", message: (*federationpb.Denial)(nil).ProtoReflect().Descriptor(),
		columns: []column{
			{name: "time", path: "time"}, {name: "signed", path: "signatureVerified"}, {name: "from", path: "remoteAddress"},
			{name: "because", text: func(m protoreflect.Message) string {
				d, _ := m.Interface().(*federationpb.Denial)
				if text := misfits(d.GetChecks()); text != "" {
					return text
				}
				return d.GetMessage()
			}},
		},
		wide: []column{
			{name: "request", path: "requestId"}, {name: "message", path: "message"},
			{name: "cause", text: func(m protoreflect.Message) string {
				d, _ := m.Interface().(*federationpb.Denial)
				return causes(d.GetChecks())
			}},
		},
	}
}

func causes(checks []*federationpb.Check) string {
	var all []string
	for _, c := range checks {
		if c.GetCause() != "" {
			all = append(all, c.GetCause())
		}
	}
	return strings.Join(all, "; ")
}

func (a *app) issuers() *cobra.Command {
	var parent string
	cmd := &cobra.Command{
		Use: "issuers", Short: "List the issuers that identities trust, and whether they can be reached", Args: cobra.NoArgs,
		RunE: a.ask(func(ctx context.Context, c *client, _ *cobra.Command, _ []string) error {
			req := &federationpb.ListIssuersRequest{}
			if parent != "" {
				var err error
				if req.DescendantsOf, err = c.resolve(ctx, groups(), parent); err != nil {
					return err
				}
			}
			m, err := c.call(ctx, federationMethod("ListIssuers"), req, map[string]string{"descendants_of": "--parent"})
			if err != nil {
				return err
			}
			if err := a.showAll(issuersNoun(), m, "issuers"); err != nil {
				return err
			}
			if found, _ := m.Interface().(*federationpb.ListIssuersResponse); found.GetIncomplete() {
				a.note("there are more issuers than these")
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&parent, "parent", "", "only issuers that identities in this `GROUP` or below it trust")
	must(cmd.RegisterFlagCompletionFunc("parent", a.completeFlag(groups())))
	return cmd
}

func issuersNoun() noun {
	of := func(text func(*federationpb.Issuer) string) func(protoreflect.Message) string {
		return func(m protoreflect.Message) string {
			i, _ := m.Interface().(*federationpb.Issuer)
			return text(i)
		}
	}
	return noun{
		use: "issuers", one: "issuer", id: "issuer", message: (*federationpb.Issuer)(nil).ProtoReflect().Descriptor(),
		columns: []column{
			{name: "issuer", path: "issuer"}, {name: "reachable", text: of(reachable)},
			{name: "keys", text: of(func(i *federationpb.Issuer) string { return strconv.Itoa(len(i.GetKeys())) })},
			{name: "identities", text: of(identityCount)},
			{name: "endangered", text: of(func(i *federationpb.Issuer) string { return strconv.Itoa(len(i.GetEndangered())) })},
			{name: "problem", path: "problem"},
		},
		wide: []column{
			{name: "checkTime", path: "checkTime"}, {name: "successTime", path: "successTime"},
			{name: "keyIds", text: of(keyIDs)}, {name: "stopMatching", text: of(endangered)},
		},
	}
}

func reachable(i *federationpb.Issuer) string {
	switch {
	case i.GetCheckTime() == nil:
		return "unknown"
	case i.GetReachable():
		return "yes"
	}
	return "no"
}

// identityCount is a number, of which the server counts a thousand at most.
func identityCount(i *federationpb.Issuer) string {
	if i.GetIdentityCount() >= 1000 {
		return "1000+"
	}
	return strconv.Itoa(int(i.GetIdentityCount()))
}

func keyIDs(i *federationpb.Issuer) string {
	var all []string
	for _, k := range i.GetKeys() {
		all = append(all, strings.TrimSpace(k.GetId()+" "+k.GetAlgorithm()))
	}
	return strings.Join(all, ",")
}

func endangered(i *federationpb.Issuer) string {
	var all []string
	for _, e := range i.GetEndangered() {
		all = append(all, e.GetIdentityName()+" ("+e.GetIdentityUid()+"): "+e.GetReason())
	}
	return strings.Join(all, "; ")
}
