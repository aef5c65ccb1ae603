"""From an experiment's YAML to evidence: start a rung's server, send it the workload, judge what came back.

    experiment   the YAML, checked and filled in          client   HTTP with the clock
    workload     requests of known length and label       answers  a response as the columns of a row
    server       one process an arm                       passes   arm by arm, pass by pass, into the run
    metrics      what a gate may be about                 gates    limits held against a run's rows

Everything here is a client of the service: no model is loaded in this process.
"""
