package iam

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// Dev returns the commands for a server in development mode.
func Dev(a *noun.App) *cobra.Command {
	token := a.Branch("token", "Print a workload's token, signed by the test issuer of a server in development mode")
	token.Long = "Prints a token as a platform would give it to a workload, signed by the issuer that holdfastd --dev runs for\n" +
		"this. An identity that trusts that issuer (create … --issuer) can be tried before there is a pipeline."
	for _, p := range presets() {
		example := "  holdfast dev token " + p.use + " " + p.dev
		token.AddCommand(devToken(a, p, "Print a token like those of "+p.platform, example))
	}
	token.AddCommand(devToken(a, preset{use: "raw"}, "Print a token of just these claims",
		"  holdfast dev token raw --claim sub=me"))
	return a.Branch("dev", "Try things out with a server in development mode", token)
}

// devToken mints a token with the claims of a job, if there is one.
func devToken(a *noun.App, p preset, short, example string) *cobra.Command {
	var file string
	var texts, values []string
	cmd := &cobra.Command{
		Use: p.use, Short: short, Example: example, Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			all := map[string]any{}
			if p.claims != nil {
				var err error
				if all, err = p.claimsOf(p.job(cmd.Flags())); err != nil {
					return err
				}
				all["preset"] = p.use
			}
			dev, err := a.DevServer(file)
			if err != nil {
				return err
			}
			all["aud"] = dev.AuthURL // the server's, and not that of the test issuer
			if err := addClaims(all, texts, values); err != nil {
				return err
			}
			token, err := a.Mint(ctx, dev.TestIssuer, all)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, token)
			return nil
		}),
	}
	f := cmd.Flags()
	p.register(f)
	f.StringArrayVar(&texts, "claim", nil, "a claim and its text, `KEY=VALUE`; can be repeated")
	f.StringArrayVar(&values, "claim-json", nil,
		"a claim and its value in JSON, `KEY=JSON`; null takes it away; can be repeated")
	f.StringVar(&file, "dev-file", "", "`FILE` the server has written (that of config use-dev, or data/dev.json)")
	return cmd
}

func addClaims(all map[string]any, texts, values []string) error {
	for _, text := range texts {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return problem.Usage("--claim: %q is not of the form key=value", text)
		}
		all[k] = v
	}
	for _, text := range values {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" || !json.Valid([]byte(v)) {
			return problem.Usage("--claim-json: %q is not of the form key=json", text)
		}
		all[k] = json.RawMessage(v)
	}
	return nil
}
