package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// bodies has an example of the request body for every operation that takes one, by
// the operation's id. The reference and the OpenAPI document show them.
//
//go:embed examples.json
var bodies []byte

// addExamples adds the examples. It returns an error if an operation with a body has no
// example, or if an example belongs to no such operation.
func (doc *openAPI) addExamples() error {
	var examples map[string]json.RawMessage
	if err := json.Unmarshal(bodies, &examples); err != nil {
		return fmt.Errorf("examples.json: %w", err)
	}
	var wrong []error
	doc.each(func(_, _ string, op *operation) {
		body, ok := examples[op.OperationID]
		if ok != (op.RequestBody != nil) {
			wrong = append(wrong, fmt.Errorf("examples.json: %s has a body: %t, and an example: %t",
				op.OperationID, op.RequestBody != nil, ok))
		}
		delete(examples, op.OperationID)
		if op.RequestBody == nil {
			return
		}
		for kind, m := range op.RequestBody.Content {
			m.Example = body
			op.RequestBody.Content[kind] = m
		}
	})
	for _, id := range slices.Sorted(maps.Keys(examples)) {
		wrong = append(wrong, fmt.Errorf("examples.json: there is no %s", id))
	}
	return errors.Join(wrong...)
}

// each calls f for every operation.
func (doc *openAPI) each(f func(path, method string, op *operation)) {
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			f(path, method, doc.Paths[path][method])
		}
	}
}

// failures are the answers of calls that fail, by their name in the document.
var failures = map[string]string{
	"BadRequest":      "400: the request is not valid. The details name the field.",
	"Unauthenticated": "401: there is no token, or it is not valid.",
	"Forbidden":       "403: the caller lacks a capability, or the resource does not exist.",
	"NotFound":        "404: the resource does not exist.",
	"Conflict":        "409: the resource already exists, or was changed by another request.",
	"TooMany":         "429: a limit or a budget is used up. The details say which.",
}

// addFailures adds the possible errors to every operation, in addition to the
// default response.
func (doc *openAPI) addFailures() {
	doc.Components.Responses = map[string]response{}
	for name, text := range failures {
		doc.Components.Responses[name] = response{Description: text, Content: content{
			"application/json": {Schema: schema{"$ref": "#/components/schemas/" + statusName}},
		}}
	}
	doc.each(func(path, method string, op *operation) {
		may := map[int]string{http.StatusBadRequest: "BadRequest", http.StatusTooManyRequests: "TooMany"}
		if op.Security == nil { // without a setting of its own, the operation requires a token
			may[http.StatusUnauthorized], may[http.StatusForbidden] = "Unauthenticated", "Forbidden"
		}
		if strings.Contains(path, "{") {
			may[http.StatusNotFound] = "NotFound"
		}
		if method != "get" {
			may[http.StatusConflict] = "Conflict"
		}
		for code, name := range may {
			op.Responses[fmt.Sprint(code)] = response{Ref: "#/components/responses/" + name}
		}
	})
}
