"""The certificate: one schedule's trace speaks for all schedules.

Proof that the premises of docs/certificate_reference.md, here by their numbers, suffice. Take any schedule and its
first step that differs from the run: an operation counts in another phase, a wait sees another completion, something
is undefined. All that the run orders before that step has happened.

- It counts. The phase before is complete (3). Its own is not, since this operation is missing (4). So it counts where
  it did.
- It ends a wait. Its first try had the phase before behind it (1), so no try passed on an older parity. The phase
  after is not complete, since something that counts in it comes after this wait (2). So the parity passes only if the
  phase of the run is complete.
- It takes part in a generation. The one before is complete (5), and this one lacks the step.
- Its address, and that it is reached, depend on values that nothing schedule-dependent reaches (6), and on loads
  without races.

So no such step exists. No schedule stops short: of the remaining steps take a minimal one. A wait has all operations
of its phase, and the next phase lacks one; a generation has all participants; a request for registers is served (7).
If a premise fails, running all that the missing edge allows first gives a schedule that is wrong.
"""
