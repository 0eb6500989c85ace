package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

// versions is the output of the command version.
type versions struct {
	Client clientBuild    `json:"client"`
	Server *serverVersion `json:"server,omitempty"`
}

type clientBuild struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Date      string `json:"date,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

type serverVersion struct {
	API         string   `json:"api"`
	Version     string   `json:"version"`
	GoVersion   string   `json:"goVersion"`
	APIVersions []string `json:"apiVersions"`
}

func versionCommand(a *noun.App) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of this command and of the server", Args: cobra.NoArgs,
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			build := buildinfo.Read()
			v := versions{Client: clientBuild{build.Version, build.Commit, build.Date, build.Go, build.Platform}}
			if !clientOnly {
				server, err := askVersion(ctx, a)
				if err != nil {
					a.Note("cannot get the version of the server: %v", err)
				}
				v.Server = server
			}
			return printVersions(a, v)
		}),
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "print only the version of this command")
	return cmd
}

func askVersion(ctx context.Context, a *noun.App) (*serverVersion, error) {
	v, err := signin.Call(ctx, accesspb.NewAccessServiceClient(a).GetVersion, &accesspb.GetVersionRequest{})
	if err != nil {
		return nil, err
	}
	api, err := a.Server()
	return &serverVersion{api.Text, v.GetVersion(), v.GetGoVersion(), v.GetApiVersions()}, err
}

func printVersions(a *noun.App, v versions) error {
	if *a.Flag("output") == "json" {
		return a.JSON(v)
	}
	fmt.Fprintln(a.Out, "client", buildinfo.Read())
	if s := v.Server; s != nil {
		fmt.Fprintf(a.Out, "server %s (%s, %s) at %s\n", s.Version, s.GoVersion, strings.Join(s.APIVersions, ", "), s.API)
	}
	return nil
}
