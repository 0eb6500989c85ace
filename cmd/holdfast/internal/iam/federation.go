package iam

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
)

func explain(a *noun.App) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "explain [IDENTITY] --token-file FILE", Short: "Check whether a token of a workload matches an identity",
		Long: "Compares the token with the identity, or with all identities that you can read, claim by claim. No token\n" +
			"is issued. The exit code is 3 if no identity matches.",
		Example: "  holdfast iam identities explain acme/platform/ci --token-file token.jwt",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.CompleteArgs(Identities()),
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if file == "" {
				return problem.Usage("--token-file is needed, with the workload's token")
			}
			token, err := a.ReadText(file)
			if err != nil {
				return fmt.Errorf("--token-file: %w", err)
			}
			req := &federationpb.ExplainTokenRequest{Token: token}
			if len(args) > 0 {
				if req.IdentityUid, err = a.Resolve(ctx, Identities(), args[0]); err != nil {
					return err
				}
			}
			found, err := signin.Call(ctx, federationpb.NewFederationServiceClient(a).ExplainToken, req, "token=--token-file",
				"identity_uid=IDENTITY")
			if err != nil {
				return err
			}
			return showExplained(ctx, a, found)
		}),
	}
	// This flag hides the global flag of the same name, because this token belongs to the
	// workload and not to the caller.
	cmd.Flags().StringVar(&file, "token-file", "", "`FILE` with the token of the workload; - is standard input")
	return cmd
}

// showExplained prints an explanation. If no identity matches, that is a result and not
// an error.
func showExplained(ctx context.Context, a *noun.App, found *federationpb.ExplainTokenResponse) error {
	because := func(e *federationpb.Explanation) string { return misfits(e.GetChecks()) }
	v := output.View{
		Plural: "explanations", ID: "identityUid",
		Columns: output.Columns(output.PathOf("identity", "identityUid").InCSV("identityName"), "accepted",
			output.Text("because", because)),
		Wide: output.Columns("uid=identityUid"),
	}
	say := func() { sayExplained(ctx, a, found) }
	if err := noun.ShowAnswer(ctx, a, v, found, found.GetExplanations(), say); err != nil {
		return err
	}
	if found.GetIncomplete() {
		a.Note("not all identities were checked, because there are too many")
	}
	if slices.ContainsFunc(found.GetExplanations(), (*federationpb.Explanation).GetAccepted) {
		return nil
	}
	return problem.New(problem.ExitNo, "")
}

func sayExplained(ctx context.Context, a *noun.App, found *federationpb.ExplainTokenResponse) {
	if len(found.GetExplanations()) == 0 {
		a.Note("there are no identities to compare the token with")
	}
	var uids []string
	for _, e := range found.GetExplanations() {
		uids = append(uids, e.GetIdentityUid())
	}
	called := a.Called(ctx, uids...)
	for i, e := range found.GetExplanations() {
		if i > 0 {
			fmt.Fprintln(a.Out)
		}
		verdict := a.Paint(output.Red, "refused")
		if e.GetAccepted() {
			verdict = a.Paint(output.Green, "accepted")
		}
		fmt.Fprintf(a.Out, "%s: %s\n", output.Printable(called(e.GetIdentityUid()).Path), verdict)
		for _, c := range e.GetChecks() {
			sayCheck(a, c)
		}
	}
}

// sayCheck prints one line for a claim that matches, and otherwise the expected and the
// received value.
func sayCheck(a *noun.App, c *federationpb.Check) {
	if c.GetOk() {
		fmt.Fprintf(a.Out, "  %s %-10s %s\n", a.Paint(output.Green, "ok"), output.Printable(c.GetClaim()),
			output.Printable(c.GetReceived()))
		return
	}
	fmt.Fprintf(a.Out, "  %s %-10s expected %s\n", a.Paint(output.Red, "no"), output.Printable(c.GetClaim()),
		output.Printable(c.GetExpected()))
	fmt.Fprintf(a.Out, "                received %s\n", output.Printable(cmp.Or(c.GetReceived(), "nothing")))
	if c.GetCause() != "" {
		fmt.Fprintf(a.Out, "                %s\n", output.Printable(c.GetCause()))
	}
}

// misfits returns the claims that do not match, for one cell of a table.
func misfits(checks []*federationpb.Check) string {
	var texts []string
	for _, c := range checks {
		if !c.GetOk() {
			texts = append(texts, fmt.Sprintf("%s: expected %s, received %s", c.GetClaim(), c.GetExpected(),
				cmp.Or(c.GetReceived(), "nothing")))
		}
	}
	return strings.Join(texts, "; ")
}

func denials(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "denials IDENTITY", Short: "List tokens that were recently refused for an identity, and why",
		Long: "The claims of a token whose signature was not verified can be forged: see the column signed.",
	}
	return a.About(Identities(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &federationpb.ListDenialsRequest{IdentityUid: uid}
		m, err := signin.Call(ctx, federationpb.NewFederationServiceClient(a).ListDenials, req, "identity_uid=IDENTITY")
		if err != nil {
			return err
		}
		return noun.ShowAll(ctx, a, denialView(), m.GetDenials())
	})
}

func exchanges(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "exchanges IDENTITY", Short: "List tokens that were recently exchanged for a token of an identity",
		Long: "If there are several within one second, only the last is listed; the column count shows their number.",
	}
	return a.About(Identities(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		req := &federationpb.ListExchangesRequest{IdentityUid: uid}
		m, err := signin.Call(ctx, federationpb.NewFederationServiceClient(a).ListExchanges, req, "identity_uid=IDENTITY")
		if err != nil {
			return err
		}
		return noun.ShowAll(ctx, a, output.View{
			Plural: "exchanges", ID: "requestId",
			Columns: output.Columns("time", "from=remoteAddress", "issuer", "subject"),
			Wide:    output.Columns("count", "for=audience", "request=requestId"),
		}, m.GetExchanges())
	})
}

func denialView() output.View {
	because := func(d *federationpb.Denial) string { return cmp.Or(misfits(d.GetChecks()), d.GetMessage()) }
	cause := func(d *federationpb.Denial) string { return causes(d.GetChecks()) }
	return output.View{
		Plural: "denials", ID: "requestId",
		Columns: output.Columns("time", "signed=signatureVerified", "from=remoteAddress", output.Text("because", because)),
		Wide:    output.Columns("request=requestId", "message", output.Text("cause", cause)),
	}
}

func causes(checks []*federationpb.Check) string {
	var texts []string
	for _, c := range checks {
		if c.GetCause() != "" {
			texts = append(texts, c.GetCause())
		}
	}
	return strings.Join(texts, "; ")
}

func issuers(a *noun.App) *cobra.Command {
	var parent string
	cmd := &cobra.Command{
		Use: "issuers", Short: "List the issuers that identities trust, and whether they are reachable", Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			uid, err := a.ResolveAny(ctx, noun.Groups(), parent)
			if err != nil {
				return err
			}
			found, err := signin.Call(ctx, federationpb.NewFederationServiceClient(a).ListIssuers,
				&federationpb.ListIssuersRequest{DescendantsOf: uid}, "descendants_of=--parent")
			if err != nil {
				return err
			}
			if err := noun.ShowAll(ctx, a, issuerView(), found.GetIssuers()); err != nil {
				return err
			}
			if found.GetIncomplete() {
				a.Note("there are more issuers")
			}
			return nil
		}),
	}
	a.RegisterRef(cmd, &parent, "parent", noun.Groups(), "only issuers trusted by identities in `GROUP` and its subgroups")
	return cmd
}

func issuerView() output.View {
	keys := func(i *federationpb.Issuer) string { return strconv.Itoa(len(i.GetKeys())) }
	count := func(i *federationpb.Issuer) string { return strconv.Itoa(len(i.GetEndangered())) }
	return output.View{
		Plural: "issuers", ID: "issuer",
		Columns: output.Columns("issuer", output.Text("reachable", reachable), output.Text("keys", keys),
			output.Text("identities", identityCount), output.Text("endangered", count), "problem"),
		Wide: output.Columns("checkTime", "successTime", output.Text("keyIds", keyIDs),
			output.Text("stopMatching", endangered)),
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

// identityCount returns the number of identities. The server counts at most 1000.
func identityCount(i *federationpb.Issuer) string {
	if i.GetIdentityCount() >= 1000 {
		return "1000+"
	}
	return strconv.Itoa(int(i.GetIdentityCount()))
}

func keyIDs(i *federationpb.Issuer) string {
	var ids []string
	for _, k := range i.GetKeys() {
		ids = append(ids, strings.TrimSpace(k.GetId()+" "+k.GetAlgorithm()))
	}
	return strings.Join(ids, ",")
}

func endangered(i *federationpb.Issuer) string {
	var texts []string
	for _, e := range i.GetEndangered() {
		// The text is long, because only -o wide and CSV show it.
		texts = append(texts, e.GetIdentityName()+" ("+e.GetIdentityUid()+"): "+e.GetReason())
	}
	return strings.Join(texts, "; ")
}
