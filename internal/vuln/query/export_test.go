package query

// UntilDone makes untilDone available to tests.
var UntilDone = untilDone[int]
