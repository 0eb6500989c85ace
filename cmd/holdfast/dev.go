package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	holdfast "github.com/holdfast-dev/holdfast/client"
)

// A devFile is what a server in development mode tells programs on its machine.
type devFile struct {
	BaseURL         string `json:"baseUrl"`
	AuthURL         string `json:"authUrl"`
	RegistryHost    string `json:"registryHost"`
	OrganizationUID string `json:"organizationUid"`
	Token           string `json:"token"`
	TestIssuer      string `json:"testIssuer"`
}

func readDevFile(path string) (dev devFile, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return dev, usage("%v", err).hint("a server that runs as holdfastd --dev writes it into its data folder")
	}
	if json.Unmarshal(text, &dev) != nil || holdfast.CheckAddress(dev.BaseURL) != nil || !holdfast.IsToken(dev.Token) { // an error may quote the token
		return dev, usage("%s is not a file that holdfastd --dev has written", path)
	}
	dev.AuthURL = cmp.Or(dev.AuthURL, dev.BaseURL)
	return dev, nil
}

// dev is the commands for a server in development mode.
func (a *app) dev() *cobra.Command {
	token := a.branch("token", "Print a workload's token, signed by the test issuer of a server in development mode")
	token.Long = "Prints a token as a platform would give it to a workload, signed by the issuer that holdfastd --dev runs for\n" +
		"this. An identity that trusts that issuer (create … --issuer) can be tried before there is a pipeline."
	for _, p := range presets() {
		example := "  holdfast dev token " + p.use + " " + p.dev
		token.AddCommand(a.devToken(p.use, "Print a token like those of "+p.platform, example, p.job))
	}
	token.AddCommand(a.devToken("raw", "Print a token of just these claims", "  holdfast dev token raw --claim sub=me", nil))
	return a.branch("dev", "Try things out with a server in development mode", token)
}

// devToken mints a token with the claims of a job; nil stands for none.
func (a *app) devToken(use, short, example string, flags func(*pflag.FlagSet) job) *cobra.Command {
	var file string
	var texts, values []string
	var workload job
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.NoArgs,
		RunE: a.do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			all := map[string]any{}
			if workload != nil {
				var err error
				if all, err = workload.claims(); err != nil {
					return err
				}
				all["preset"] = use
			}
			dev, err := a.devServer(file)
			if err != nil {
				return err
			}
			all["aud"] = dev.AuthURL // the server's, and not that of the test issuer
			if err := addClaims(all, texts, values); err != nil {
				return err
			}
			token, err := a.mint(ctx, dev.TestIssuer, all)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.out, token)
			return nil
		}),
	}
	f := cmd.Flags()
	if flags != nil {
		workload = flags(f)
	}
	f.StringArrayVar(&texts, "claim", nil, "a claim and its text, `KEY=VALUE`; can be repeated")
	f.StringArrayVar(&values, "claim-json", nil, "a claim and its value in JSON, `KEY=JSON`; null takes it away; can be repeated")
	f.StringVar(&file, "dev-file", "", "`FILE` the server has written (that of config use-dev, or data/dev.json)")
	return cmd
}

func addClaims(all map[string]any, texts, values []string) error {
	for _, text := range texts {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return usage("--claim: %q is not of the form key=value", text)
		}
		all[k] = v
	}
	for _, text := range values {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" || !json.Valid([]byte(v)) {
			return usage("--claim-json: %q is not of the form key=json", text)
		}
		all[k] = json.RawMessage(v)
	}
	return nil
}

// devServer finds the server in development mode: that of a file, that of the
// session, or that of this folder.
func (a *app) devServer(file string) (devFile, error) {
	api, err := a.value("api")
	if err != nil {
		return devFile{}, err
	}
	if file == "" && api.value != "" {
		s, err := a.signIn(api.value)
		if err != nil {
			return devFile{}, err
		}
		file = s.DevFile
	}
	dev, err := readDevFile(cmp.Or(file, "data/dev.json"))
	if err == nil && dev.TestIssuer == "" {
		err = usage("the server in development mode has no test issuer")
	}
	return dev, err
}

// mint has the test issuer sign claims.
func (a *app) mint(ctx context.Context, issuer string, claims map[string]any) (string, error) {
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, issuer+"/token", bytes.NewReader(body))
	if err != nil {
		return "", errors.New("the address of the test issuer is not one")
	}
	resp, err := transmit(&tls.Config{MinVersion: tls.VersionTLS12}, req)
	if err != nil {
		return "", newProblem(exitUnreachable, "ask %s for a token: %v", issuer, err)
	}
	defer func() { _ = resp.Body.Close() }() // what was read is all there is to know
	var answer struct{ Token string }
	if json.NewDecoder(io.LimitReader(resp.Body, maxIssuerAnswer)).Decode(&answer) != nil || answer.Token == "" {
		return "", newProblem(exitUnreachable, "ask %s for a token: it answers %s", issuer, resp.Status)
	}
	return answer.Token, nil
}
