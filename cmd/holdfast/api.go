package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
)

// apiCommand returns the command that sends any request to the API.
func apiCommand(a *noun.App) *cobra.Command {
	var body string
	var web bool
	cmd := &cobra.Command{
		Use: "api [METHOD] PATH", Short: "Send a request to the JSON API, and print the answer",
		Long: "Sends a request with your token. METHOD is GET, or POST with --data. /docs/reference/ on the server lists\n" +
			"the paths. The request always goes to the server of the settings, so the token is sent nowhere else.",
		Example: "  holdfast api /iam/v2beta1/groups?pageSize=5\n" +
			"  holdfast api POST /iam/v2beta1/groups/UID -d '{\"name\": \"web\"}'\n" +
			"  holdfast api PATCH '/iam/v2beta1/groups/UID?updateMask=description' -d @group.json\n" +
			"  holdfast api /iam/v2beta1/groups --jq '.groups[].name'\n" +
			"  holdfast api --web",
		Args: func(cmd *cobra.Command, args []string) error {
			if web {
				return cobra.MaximumNArgs(2)(cmd, args)
			}
			return cobra.RangeArgs(1, 2)(cmd, args)
		},
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if web {
				return a.Browse(ctx, signin.DocsPage(strings.Join(args[max(0, len(args)-1):], "")))
			}
			method, path := http.MethodGet, args[len(args)-1]
			if cmd.Flags().Changed("data") {
				method = http.MethodPost
			}
			if len(args) == 2 {
				method = strings.ToUpper(args[0])
			}
			if !slices.Contains([]string{"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"}, method) {
				return problem.Usage("%q is not an HTTP method",
					args[0]).Hint("write it as: holdfast api GET /iam/v2beta1/groups")
			}
			if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
				return problem.Usage("%q is not a path", path).Hint("it begins with one slash, such as /iam/v2beta1/groups")
			}
			content, err := readBody(a, body)
			if err != nil {
				return err
			}
			return sendRequest(ctx, a, method, path, content)
		}),
	}
	cmd.Flags().StringVarP(&body, "data", "d", "",
		"`JSON` to send; @FILE reads it from a file, and @- from standard input")
	cmd.Flags().BoolVar(&web, "web", false, "open the reference of the API in a browser, at PATH if it is given")
	return cmd
}

func readBody(a *noun.App, text string) (string, error) {
	if file, ok := strings.CutPrefix(text, "@"); ok {
		return a.ReadText(file)
	}
	return text, nil
}

// sendRequest sends a request and prints the answer. If the server refuses the request,
// it also prints the answer, and the error sets the exit code.
func sendRequest(ctx context.Context, a *noun.App, method, path, body string) error {
	resp, err := a.Send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // an error of Close does not matter, because the body was read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, text, "", "  ") == nil {
		text = pretty.Bytes()
	}
	if len(text) > 0 {
		fmt.Fprintln(a.Out, strings.TrimRight(string(text), "\n"))
	}
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	codes := map[int]int{
		http.StatusUnauthorized: problem.ExitUnauthenticated, http.StatusForbidden: problem.ExitDenied,
		http.StatusNotFound: problem.ExitNotFound,
	}
	p := problem.New(problem.ExitError, "the server answered %s", resp.Status)
	if code, ok := codes[resp.StatusCode]; ok {
		p.Code = code
	}
	return p
}
