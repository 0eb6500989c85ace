package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
)

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
			token, err := a.readText(file)
			if err != nil {
				return fmt.Errorf("--token-file: %w", err)
			}
			req := &federationpb.ExplainTokenRequest{Token: token}
			if len(args) > 0 {
				if req.IdentityUid, err = a.resolve(ctx, identities(), args[0]); err != nil {
					return err
				}
			}
			found, err := call(ctx, federationpb.NewFederationServiceClient(a).ExplainToken, req,
				map[string]string{"token": "--token-file", "identity_uid": "IDENTITY"})
			if err != nil {
				return err
			}
			return a.showExplained(found)
		}),
	}
	// It hides the flag of the same name that every command has: here it is not
	// one's own token.
	cmd.Flags().StringVar(&file, "token-file", "", "`FILE` that holds the workload's token; - is standard input")
	return cmd
}

// showExplained prints an explanation. That no identity fits is a result, not an
// error.
func (a *app) showExplained(found *federationpb.ExplainTokenResponse) error {
	because := func(m protoreflect.Message) string {
		return misfits(m.Interface().(*federationpb.Explanation).GetChecks())
	}
	v := view{
		plural: "explanations", id: "identityUid",
		columns: append(columnsOf("identity=identityName", "uid=identityUid", "accepted"), column{name: "because", text: because}),
	}
	if err := showAnswer(a, v, found, found.GetExplanations(), func() { a.sayExplained(found) }); err != nil {
		return err
	}
	if found.GetIncomplete() {
		a.note("there are more identities than were looked at")
	}
	if slices.ContainsFunc(found.GetExplanations(), (*federationpb.Explanation).GetAccepted) {
		return nil
	}
	return newProblem(exitNo, "")
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
	fmt.Fprintf(a.out, "                received %s\n", printable(cmp.Or(c.GetReceived(), "nothing")))
	if c.GetCause() != "" {
		fmt.Fprintf(a.out, "                %s\n", printable(c.GetCause()))
	}
}

// misfits is what does not fit, in one cell.
func misfits(checks []*federationpb.Check) string {
	var all []string
	for _, c := range checks {
		if !c.GetOk() {
			all = append(all, fmt.Sprintf("%s: expected %s, received %s", c.GetClaim(), c.GetExpected(), cmp.Or(c.GetReceived(), "nothing")))
		}
	}
	return strings.Join(all, "; ")
}

func (a *app) denials() *cobra.Command {
	cmd := &cobra.Command{
		Use: "denials IDENTITY", Short: "List the tokens that an identity was lately refused for, and why",
		Long: "What a token said that its issuer has not signed may be made up; the column signed tells.",
	}
	return a.about(identities(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &federationpb.ListDenialsRequest{IdentityUid: uid}
		m, err := call(ctx, federationpb.NewFederationServiceClient(a).ListDenials, req, map[string]string{"identity_uid": "IDENTITY"})
		if err != nil {
			return err
		}
		return showAll(a, denialView(), m.GetDenials())
	})
}

func denialView() view {
	because := func(m protoreflect.Message) string {
		d := m.Interface().(*federationpb.Denial)
		return cmp.Or(misfits(d.GetChecks()), d.GetMessage())
	}
	cause := func(m protoreflect.Message) string { return causes(m.Interface().(*federationpb.Denial).GetChecks()) }
	return view{
		plural: "denials", id: "requestId",
		columns: append(columnsOf("time", "signed=signatureVerified", "from=remoteAddress"), column{name: "because", text: because}),
		wide:    append(columnsOf("request=requestId", "message"), column{name: "cause", text: cause}),
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
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			uid, err := a.resolveAny(ctx, groups(), parent)
			if err != nil {
				return err
			}
			found, err := call(ctx, federationpb.NewFederationServiceClient(a).ListIssuers,
				&federationpb.ListIssuersRequest{DescendantsOf: uid}, map[string]string{"descendants_of": "--parent"})
			if err != nil {
				return err
			}
			if err := showAll(a, issuerView(), found.GetIssuers()); err != nil {
				return err
			}
			if found.GetIncomplete() {
				a.note("there are more issuers than these")
			}
			return nil
		}),
	}
	a.registerRef(cmd, &parent, "parent", groups(), "only issuers that identities in this `GROUP` or below it trust")
	return cmd
}

func issuerView() view {
	of := func(name string, text func(*federationpb.Issuer) string) column {
		return column{name: name, text: func(m protoreflect.Message) string { return text(m.Interface().(*federationpb.Issuer)) }}
	}
	return view{
		plural: "issuers", id: "issuer",
		columns: []column{
			{name: "issuer", path: "issuer"}, of("reachable", reachable),
			of("keys", func(i *federationpb.Issuer) string { return strconv.Itoa(len(i.GetKeys())) }),
			of("identities", identityCount),
			of("endangered", func(i *federationpb.Issuer) string { return strconv.Itoa(len(i.GetEndangered())) }),
			{name: "problem", path: "problem"},
		},
		wide: append(columnsOf("checkTime", "successTime"), of("keyIds", keyIDs), of("stopMatching", endangered)),
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
